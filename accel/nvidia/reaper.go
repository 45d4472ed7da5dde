//go:build cgo

package nvidia

import "sync"

// reaper frees objects, one after the other: the driver may wait for the device meanwhile, so streams' goroutines
// delegate it to one of its own.
type reaper struct {
	mu    sync.Mutex
	work  sync.Cond
	queue []func()
	over  bool
}

func (r *reaper) init() {
	r.work.L = &r.mu
	go r.run()
}

func (r *reaper) run() {
	for f := r.next(); f != nil; f = r.next() {
		f()
	}
}

func (r *reaper) next() func() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.queue) == 0 && !r.over {
		r.work.Wait()
	}
	if len(r.queue) == 0 {
		return nil
	}
	f := r.queue[0]
	r.queue = r.queue[1:]
	return f
}

func (r *reaper) do(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queue = append(r.queue, f)
	r.work.Signal()
}

func (r *reaper) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = true
	r.work.Signal()
}
