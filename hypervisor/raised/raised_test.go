package raised

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"
)

// machine is what has a weight.
type machine struct {
	mu  sync.Mutex
	has int64
}

func (m *machine) put(r Record) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !slices.Contains(r.Ours, m.has) {
		return false, nil
	}
	m.has = r.Set
	return true, nil
}

func (m *machine) is(want int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.has == want
}

// set is by somebody else.
func (m *machine) set(weight int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.has = weight
}

// What a daemon that has died left behind is put back, once, by whoever comes to it
// first; nothing that somebody else has set since.
func TestPutBack(t *testing.T) {
	dead := exec.Command("true")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	for name, c := range map[string]struct {
		pid       int
		has, want int64
	}{
		"of a daemon that died": {dead.Process.Pid, 400, 100},
		"of one that lives":     {os.Getpid(), 400, 400},
		"set since":             {dead.Process.Pid, 300, 300},
	} {
		t.Run(name, func(t *testing.T) {
			m, dir := &machine{has: c.has}, t.TempDir()
			started, _ := startOf(c.pid)
			text, err := json.Marshal(Record{PID: c.pid, Started: started, Xen: 3, Set: 100, Ours: []int64{400, 25}})
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "one.json"), text, 0o600); err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() { Guard(ctx, dir, "one", log, m.put); close(ended) }()
			time.Sleep(10 * time.Millisecond)
			for end := time.Now().Add(10 * time.Second); !m.is(c.want) && time.Now().Before(end); {
				time.Sleep(time.Millisecond)
			}
			if !m.is(c.want) {
				t.Errorf("it has %d, not %d", m.has, c.want)
			}
			if c.want == 100 {
				m.set(25) // that is somebody else's
				time.Sleep(guardEvery + guardEvery/2)
				if !m.is(25) {
					t.Errorf("it has %d, not 25", m.has)
				}
			}
			stop()
			<-ended
			if c.pid != os.Getpid() {
				m.set(c.has)
				Sweep(dir, log, m.put)
				if left, _ := os.ReadDir(dir); !m.is(c.want) || len(left) > 0 {
					t.Errorf("swept, it has %d, not %d, and there is %v", m.has, c.want, left)
				}
			}
		})
	}
}

// What is noted is there before the weight is changed, of this process, and gone when it is
// as it was.
func TestNote(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "raised")
	r := Record{Xen: 3}
	r.Erase(dir, "one")
	for _, w := range []int64{1024, 64, 1024} {
		if err := r.Note(dir, "one", 256, w); err != nil {
			t.Fatal(err)
		}
	}
	got, err := read(pathOf(dir, "one"))
	if err != nil || got.Xen != 3 || got.Set != 256 || !slices.Equal(got.Ours, []int64{1024, 64}) || !got.held() {
		t.Errorf("%+v, %v", got, err)
	}
	r.Erase(dir, "one")
	if left, _ := os.ReadDir(dir); len(left) > 0 || len(r.Ours) > 0 {
		t.Errorf("%v are left, and %+v", left, r)
	}
}

// Whatever a record says, it is of one machine, and a weight.
func FuzzRecord(f *testing.F) {
	f.Add([]byte(`{"pid":1,"started":2,"file":"/sys/fs/cgroup/x/cpu.weight","set":100,"ours":[400,25]}`))
	f.Add([]byte(`{"pid":1,"started":2,"domid":7,"set":256,"ours":[1024]}`))
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := parse(text)
		if err == nil && (r.Set < 1 || r.Set > MaxWeight || filepath.IsAbs(r.File) == (r.Xen != 0)) {
			t.Errorf("%+v", r)
		}
	})
}
