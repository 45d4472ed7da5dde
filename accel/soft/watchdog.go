package soft

import (
	"sync"
	"sync/atomic"
	"time"

	"pegasus/accel/soft/engine"
)

// watchdog ends kernels that run too long. Its timer is not touched for each
// kernel: it is armed by the first, and looks, when it fires, since when one runs.
type watchdog struct {
	dev   *Device
	limit atomic.Int64
	since atomic.Int64 // of the running kernel, 0 if none
	armed atomic.Bool

	mu    sync.Mutex // held from reading limit to setting the timer by it, and to change it
	timer *time.Timer
}

func (w *watchdog) init(d *Device) {
	w.dev = d
	w.limit.Store(d.config.KernelTimeout)
	w.timer = time.AfterFunc(time.Hour, w.look)
	w.timer.Stop()
}

// LimitKernels implements accel.Limiter.
func (d *Device) LimitKernels(limit time.Duration) {
	w := &d.watchdog
	w.mu.Lock()
	defer w.mu.Unlock()
	w.limit.Store(int64(limit))
	if w.armed.Load() {
		w.timer.Reset(0)
	}
}

func (w *watchdog) stop() { w.timer.Stop() }

func (w *watchdog) begin(now int64) {
	if w.limit.Load() <= 0 {
		return
	}
	w.since.Store(now)
	w.arm()
}

func (w *watchdog) end() { w.since.Store(0) }

func (w *watchdog) arm() {
	if !w.armed.Load() && w.armed.CompareAndSwap(false, true) {
		w.sleep(0)
	}
}

// sleep sets the timer to when a kernel that has run for so long will have had
// its time, unless it has had it.
func (w *watchdog) sleep(ran int64) (late bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	left := w.limit.Load() - ran
	if left <= 0 {
		return true
	}
	w.timer.Reset(time.Duration(left))
	return false
}

// look is called when the timer fires.
func (w *watchdog) look() {
	if since := w.since.Load(); since != 0 {
		if w.sleep(w.dev.clock() - since) {
			w.expire(since)
			w.sleep(0)
		}
		return
	}
	w.armed.Store(false)
	if w.since.Load() != 0 { // it began meanwhile, and saw the timer armed
		w.arm()
	}
}

// expire cancels the kernel that has been running since then, if it still is.
func (w *watchdog) expire(since int64) {
	d := w.dev
	e := d.executors[engine.Compute]
	d.mu.Lock()
	hit := e.current != nil && w.since.CompareAndSwap(since, 0)
	if hit {
		e.timely.Store(false)
		e.cancel.Store(true)
	}
	d.mu.Unlock()
	if hit && d.config.OnTimeout != nil {
		d.config.OnTimeout()
	}
}
