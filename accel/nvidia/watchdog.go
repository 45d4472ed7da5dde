//go:build cgo

package nvidia

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"pegasus/accel"
	"pegasus/cuda"
)

// watchdog finds kernels that run too long. It sleeps while none is queued. A
// kernel counts from when it is first seen to have begun, so it may run for a
// quarter of the limit longer.
type watchdog struct {
	dev   *Device
	limit atomic.Int64
	armed atomic.Bool

	mu    sync.Mutex
	timer *time.Timer
	over  bool
	// charged is the time until which running kernels are charged, in the rare case that this was done before their end.
	charged int64
}

func (w *watchdog) init(d *Device) {
	w.dev = d
	w.limit.Store(d.config.KernelTimeout)
	w.timer = time.AfterFunc(time.Hour, w.look)
	w.timer.Stop()
}

func (w *watchdog) setLimit(limit time.Duration) {
	w.limit.Store(int64(limit))
	if w.armed.Load() {
		w.reset(0)
	}
}

func (w *watchdog) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	w.timer.Stop()
}

func (w *watchdog) reset(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.over {
		w.timer.Reset(d)
	}
}

// arm is called when a kernel was queued.
func (w *watchdog) arm() {
	if w.limit.Load() > 0 && !w.armed.Load() && w.armed.CompareAndSwap(false, true) {
		w.reset(w.pause())
	}
}

func (w *watchdog) pause() time.Duration {
	return max(time.Duration(w.limit.Load())/4, time.Millisecond)
}

// look is called when the timer fires.
func (w *watchdog) look() {
	w.armed.Store(false)
	running := w.kernels()
	var since int64
	for _, p := range running {
		begun, late := w.late(p)
		if begun != 0 && (since == 0 || begun < since) {
			since = begun
		}
		if late {
			p.ctx.Fail(cuda.ErrorLaunchTimeout)
			w.chargeSoFar(p, true) // its operation stays in flight: until it ends, no other domain has the engine alone
			w.dev.log.Warn("kernel runs longer than its timeout", "kernel", p.kernel, "timeout", time.Duration(w.limit.Load()))
			if w.dev.config.OnTimeout != nil {
				w.dev.config.OnTimeout()
			}
			return
		}
	}
	w.executes(since)
	if len(running) > 0 {
		w.arm()
	}
}

// executes reports since when a kernel runs that is charged when it ends, or 0. The time that is charged already is left
// out.
func (w *watchdog) executes(since int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if since != 0 {
		since = max(since, w.charged)
	}
	w.report(since)
}

// report passes on since when a kernel runs. w.mu is held.
func (w *watchdog) report(since int64) {
	if f := w.dev.config.Executes; f != nil && !w.over {
		f(accel.Compute, since)
	}
}

// chargeSoFar charges the time that a running kernel has used until now. The rest is charged when the kernel ends, or
// when the process does. forGood: the kernel won't end before the process.
func (w *watchdog) chargeSoFar(p *inflightOp, forGood bool) {
	d := w.dev
	now := d.clock()
	p.begun.CompareAndSwap(0, now)
	if from, ok := p.began(); ok {
		d.mu.Lock()
		from = max(from+p.ctx.time.offset, p.submitted)
		d.mu.Unlock()
		from, to := d.charge(p.class, from, now)
		if used := d.config.Used; used != nil && to > from {
			used(p.class, to-from)
		}
	}
	if forGood {
		d.charge(p.class, now, math.MaxInt64) // no operation that ends later is charged for the same time
	}
	w.mu.Lock()
	w.charged = now
	w.report(now)
	if forGood {
		w.over = true
		w.timer.Stop()
	}
	w.mu.Unlock()
	if !p.runs() {
		w.executes(0) // it has ended meanwhile
	}
}

// kernels are those that are the first of their streams.
func (w *watchdog) kernels() (all []*inflightOp) {
	d := w.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	for c := range d.contexts {
		if c.destroyed.Begun {
			continue // its events go
		}
		for s := range c.active {
			for p := s.first; p != nil; p = p.next {
				if p.kernel != "" {
					all = append(all, p)
					break
				}
			}
		}
	}
	return all
}

// runs reports whether a kernel has begun, and its end was not reported.
func (p *inflightOp) runs() bool {
	p.ctx.dev.mu.Lock()
	over := p.reporting
	p.ctx.dev.mu.Unlock()
	return !over && p.hasBegun()
}

// late returns since when a kernel has been observed to run, 0 if it doesn't, and whether it has exceeded its limit.
func (w *watchdog) late(p *inflightOp) (begun int64, late bool) {
	if !p.runs() {
		return 0, false
	}
	now := w.dev.clock()
	p.begun.CompareAndSwap(0, now)
	begun = p.begun.Load()
	return begun, (now-begun)/p.kernels > w.limit.Load()
}
