package soft

import (
	"sync/atomic"
	"time"

	"pegasus/accel/soft/engine"
)

// watchdog ends kernels that run too long. Its timer is not touched for each
// kernel: it is armed by the first, and looks, when it fires, since when one runs.
type watchdog struct {
	dev   *Device
	limit int64
	since atomic.Int64 // of the running kernel, 0 if none
	armed atomic.Bool
	timer *time.Timer
}

func (w *watchdog) init(d *Device) {
	w.dev, w.limit = d, d.config.KernelTimeout
	w.timer = time.AfterFunc(time.Hour, w.look)
	w.timer.Stop()
}

func (w *watchdog) stop() { w.timer.Stop() }

func (w *watchdog) begin(now int64) {
	if w.limit <= 0 {
		return
	}
	w.since.Store(now)
	w.arm()
}

func (w *watchdog) end() { w.since.Store(0) }

func (w *watchdog) arm() {
	if !w.armed.Load() && w.armed.CompareAndSwap(false, true) {
		w.timer.Reset(time.Duration(w.limit))
	}
}

// look is called when the timer fires.
func (w *watchdog) look() {
	since := w.since.Load()
	if since != 0 {
		left := since + w.limit - w.dev.clock()
		if left <= 0 {
			w.expire(since)
			left = w.limit
		}
		w.timer.Reset(time.Duration(left))
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
