package soft

import (
	"testing"
	"time"

	"pegasus/accel"
	"pegasus/cuda"
)

// Pending work is counted, also the waits of one piece for many, until it has ended.
func TestQueued(t *testing.T) {
	d, c := open(t, nil)
	n := func(want int) {
		t.Helper()
		if got := d.Queued(); got != want {
			t.Errorf("%d are queued, want %d", got, want)
		}
	}
	at := alloc(t, c, 4096)
	fill := accel.Fill{Address: at, Width: 4096, Height: 1, ElementSize: 1}
	submit(t, c, c.DefaultStream(), fill)
	want(t, synchronize(t, c), cuda.Success)
	none := func() { // work still counts while its Done is being called: synchronize is notified by it
		for end := time.Now().Add(time.Minute); d.Queued() != 0 && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
		n(0)
	}
	none()
	held := make(chan func(), 1)
	submit(t, c, stream(t, c, 0), accel.HostFunc{Due: func(_ cuda.Result, finished func()) { held <- finished }})
	finished := <-held
	n(1)
	submit(t, c, c.DefaultStream(), fill) // and its wait for the other stream
	n(3)
	for range 10 { // each waits for the fill
		submit(t, c, stream(t, c, 0), fill)
	}
	n(3 + 20)
	submit(t, c, c.DefaultStream(), fill) // waits for all of them, for their dependencies, and for the host
	n(23 + 1 + 12)
	finished()
	want(t, synchronize(t, c), cuda.Success)
	none()
}

// A piece of work with many followers keeps no memory for them after its end.
func TestRecycledNodesAreSmall(t *testing.T) {
	d, c := open(t, nil)
	held := make(chan func(), 1)
	submit(t, c, stream(t, c, 0), accel.HostFunc{Due: func(_ cuda.Result, finished func()) { held <- finished }})
	done := newWaiter()
	for range 1000 {
		c.Synchronize(func(cuda.Result) {})
	}
	(<-held)()
	c.Synchronize(done.result)
	done.wait(t)
	d.mu.Lock()
	defer d.mu.Unlock()
	for n := d.spare; n != nil; n = n.next {
		if cap(n.followers) > keptFollowers || cap(n.launch.params) > keptParams {
			t.Fatalf("a spare node has room for %d followers and %d bytes", cap(n.followers), cap(n.launch.params))
		}
	}
}
