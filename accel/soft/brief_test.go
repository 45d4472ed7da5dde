package soft

import (
	"testing"

	"pegasus/cuda"
)

// loneCode is a kernel written in Go that waits for no other work.
type loneCode struct{ goCode }

func (loneCode) independent() bool { return true }

// learn makes the device predict the given time for launches of the module's kernel, for any real time: it moves the
// mean until that is stable.
func learn(d *Device, m *Module, ns int64) {
	w := launchOf(m)
	for before := int64(-1); before != d.Predict(w); {
		before = d.Predict(w)
		d.history.Learn(shape{&m.functions[0], w.Grid, w.Block, 0}.key(), ns)
	}
}

// A launch that is predicted to be brief has ended when Submit returns.
func TestBriefKernelRunsWhereSubmitted(t *testing.T) {
	d, c := open(t, nil)
	runs := 0
	m := goModule(c, 0, nil)
	m.functions[0].code = loneCode{func(r *run) *fault {
		runs++
		return nil
	}}
	learn(d, m, briefNs/4)
	for n := 1; n <= 3; n++ {
		submit(t, c, c.DefaultStream(), launchOf(m))
		if runs != n || d.Queued() != 0 {
			t.Fatalf("after %d launches: %d ran, %d are queued", n, runs, d.Queued())
		}
		learn(d, m, 1) // however long it took
	}
}

// Work that may wait for other work, or takes long, does not block its submitter.
func TestOthersDoNot(t *testing.T) {
	d, c := open(t, nil)
	submitted := make(chan struct{})
	wait := goCode(func(*run) *fault {
		<-submitted
		return nil
	})
	m := goModule(c, 0, wait)
	learn(d, m, 1)
	submit(t, c, c.DefaultStream(), launchOf(m)) // would never return
	long := goModule(c, 0, nil)
	long.functions[0].code = loneCode{wait}
	learn(d, long, 2*briefNs)
	submit(t, c, c.DefaultStream(), launchOf(long))
	close(submitted)
	want(t, synchronize(t, c), cuda.Success)
}

// A long kernel that was predicted to be brief is ended by Abort.
func TestAbort(t *testing.T) {
	d, c := open(t, nil)
	begun := make(chan struct{})
	m := goModule(c, 0, nil)
	m.functions[0].code = loneCode{func(r *run) *fault {
		close(begun)
		for !r.Cancel.Load() {
		}
		return &fault{result: cuda.ErrorLaunchTimeout}
	}}
	learn(d, m, 1)
	go func() {
		<-begun
		d.Abort()
	}()
	submit(t, c, c.DefaultStream(), launchOf(m))
	want(t, c.Err(), cuda.ErrorContextIsDestroyed)
}
