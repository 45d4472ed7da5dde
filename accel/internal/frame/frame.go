// Package frame has the parts of a context and a device that do not depend on how work is executed. The accelerators
// embed them or call them; Submit and the queues of work are each accelerator's own, since calls through a shared form
// of them would be indirect.
//
// Callers: accel/soft and accel/nvidia. Trust boundary: none; the callers check the values of a guest.
package frame

import (
	"sync"
	"sync/atomic"

	"pegasus/accel"
	"pegasus/cuda"
)

// Sticky is the sticky error of a context. Its zero value is cuda.Success. Any goroutine may use it.
type Sticky struct{ r atomic.Int32 }

// Err returns the sticky error, or cuda.Success.
func (s *Sticky) Err() cuda.Result { return cuda.Result(s.r.Load()) }

// Fail makes r the sticky error, unless there is one.
func (s *Sticky) Fail(r cuda.Result) { s.r.CompareAndSwap(0, int32(r)) }

// Query returns the result of a stream query: the error, or else cuda.ErrorNotReady unless the stream is idle.
func (s *Sticky) Query(idle bool) cuda.Result {
	if r := s.Err(); r != cuda.Success || idle {
		return r
	}
	return cuda.ErrorNotReady
}

// Destruction is the state of a context's Destroy. The owner's mutex guards it.
type Destruction struct {
	Begun bool // Destroy was called
	over  bool // and everything is freed
	done  []func()
}

// Begin adds a callback of Destroy. first reports whether it is the first one. If the destruction is over, Begin does
// not keep the callback, and the caller calls it after releasing the mutex.
func (d *Destruction) Begin(done func()) (first, over bool) {
	if !d.over {
		d.done = append(d.done, done)
	}
	first, d.Begun = !d.Begun, true
	return first, d.over
}

// End ends the destruction, and returns the callbacks, which the caller calls after releasing the mutex.
func (d *Destruction) End() []func() {
	all := d.done
	d.done, d.over = nil, true
	return all
}

// DestroyAll destroys the contexts of a device that is being closed, and returns a function that waits until all are
// gone. mu guards the set.
func DestroyAll[C interface {
	comparable
	Destroy(done func())
}](mu *sync.Mutex, contexts map[C]struct{}) (wait func()) {
	mu.Lock()
	var all []C
	for c := range contexts {
		all = append(all, c)
	}
	mu.Unlock()
	gone := new(sync.WaitGroup)
	for _, c := range all {
		gone.Add(1)
		c.Destroy(gone.Done)
	}
	return gone.Wait
}

// LaunchOf returns the launch that a piece of work is, or nil.
func LaunchOf(w accel.Work) *accel.Launch {
	switch w := w.(type) {
	case *accel.Launch:
		return w
	case accel.Launch:
		return &w
	}
	return nil
}
