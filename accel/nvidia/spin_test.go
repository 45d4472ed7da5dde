//go:build cgo

package nvidia

import (
	"sync/atomic"
	"testing"
	"time"

	"pegasus/accel"
	"pegasus/cuda"
)

// seats counts the threads that spin.
type seats struct{ taken, given atomic.Int64 }

func (s *seats) TrySpin() bool { s.taken.Add(1); return true }
func (s *seats) EndSpin()      { s.given.Add(1) }

// lingers reports whether a stream's goroutine still runs.
func (s *Stream) lingers() bool {
	s.ctx.dev.mu.Lock()
	defer s.ctx.dev.mu.Unlock()
	return s.reporting
}

// A thread polls for the end of work before it sleeps, unless the work is predicted to take long; and then it keeps no
// seat.
func TestLookFor(t *testing.T) {
	const spin = 50_000
	var all seats
	d := openDevice(t, func(c *Config) { c.Seats, c.SpinTime = &all, spin })
	x, r := d.NewContext(0)
	if r != cuda.Success {
		t.Fatal(r)
	}
	at, r := x.Alloc(4096)
	if r != cuda.Success {
		t.Fatal(r)
	}
	for range 20 {
		ended := make(chan cuda.Result, 1)
		fill := accel.Fill{Address: at, Width: 4096, Height: 1, Pitch: 4096, Value: 7, ElementSize: 1}
		if r := x.Submit(x.DefaultStream(), &fill, func(r cuda.Result, _ accel.Usage) { ended <- r }); r != cuda.Success {
			t.Fatal(r)
		}
		if r := <-ended; r != cuda.Success {
			t.Fatal(r)
		}
	}
	taken := all.taken.Load()
	if taken < 20 {
		t.Errorf("%d seats were taken", taken)
	}
	for all.taken.Load() != all.given.Load() || x.(*Context).legacy.lingers() { // a stream that waits for more gives its seat back
		time.Sleep(time.Millisecond)
	}
	taken = all.taken.Load()
	d.history.Learn(1, spin+1)
	(&inflightOp{ctx: x.(*Context), key: 1}).lookFor()
	if all.taken.Load() != taken {
		t.Error("what takes longer is looked for")
	}
}
