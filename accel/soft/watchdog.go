package soft

import (
	"sync"
	"sync/atomic"
	"time"

	"pegasus/accel/soft/engine"
	"pegasus/accel/soft/lane"
)

// watchdog ends kernels that compute for too long. What counts is processor time: a kernel that gets no processor, or waits for
// its domain's turn, is not endless for that. It is measured from when a kernel has been there for a while on.
//
// Its timer is not touched for each kernel: it is armed by the first, and looks, when it fires, since when one runs.
type watchdog struct {
	dev   *Device
	limit atomic.Int64
	since atomic.Int64 // of the running kernel, 0 if none
	meter lane.Meter   // of its cores
	armed atomic.Bool

	mu    sync.Mutex // held from reading limit to setting the timer by it, and to change it
	timer *time.Timer
}

// unmeasured is for what part of its limit, one in so many, a kernel runs before it is measured.
const unmeasured = 16

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
	w.meter.Reset()
	w.since.Store(now)
	w.arm()
}

func (w *watchdog) end() { w.since.Store(0) }

func (w *watchdog) arm() {
	if !w.armed.Load() && w.armed.CompareAndSwap(false, true) {
		w.sleep(0)
	}
}

// sleep sets the timer for a kernel of which so much has been measured: to a part of the limit while nothing is, then to when
// the kernel will have had its time at the earliest. It returns true if the kernel has had its time.
func (w *watchdog) sleep(computed int64) (late bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	limit := w.limit.Load()
	if computed >= limit {
		return true
	}
	w.timer.Reset(time.Duration(max(min(limit-computed, limit/unmeasured), int64(time.Millisecond))))
	return false
}

// look is called when the timer fires.
func (w *watchdog) look() {
	if since := w.since.Load(); since != 0 {
		if !w.meter.On() && w.dev.clock()-since >= w.limit.Load()/unmeasured {
			w.meter.Start()
		}
		if w.sleep(w.meter.Computed()) {
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
	if hit { // the kernel's end tells where it was; one that doesn't end is no reason to wait
		time.AfterFunc(endPatience, d.timedOut)
	}
}

// endPatience is how long a kernel that was cancelled may take to end.
const endPatience = 500 * time.Millisecond

// timedOut tells that work has to be ended because it computed for too long.
func (d *Device) timedOut() {
	if d.config.OnTimeout != nil {
		d.config.OnTimeout()
	}
}
