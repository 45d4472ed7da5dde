package soft

import (
	"sync"
	"sync/atomic"
	"time"

	"pegasus/accel/soft/engine"
	"pegasus/accel/soft/lane"
)

// watchdog ends kernels that compute for too long. It measures processor time: a kernel that gets no processor, or
// waits for its domain's turn, is not endless for that. The measurement begins once a kernel has run for a while.
//
// Its timer is not touched for each kernel: it is armed by the first, and when it fires it checks since when one runs.
type watchdog struct {
	dev   *Device
	limit atomic.Int64
	armed atomic.Bool

	mu    sync.Mutex // held from reading limit to setting the timer by it, and to change limit
	timer *time.Timer
}

// watched is the watchdog's record of a member's kernel.
type watched struct {
	since atomic.Int64 // when it began, 0 if none runs
	meter lane.Meter   // of its cores
}

// unmeasured is the divisor that gives the part of its limit for which a kernel runs before it is measured.
const unmeasured = 16

func (w *watchdog) init(d *Device) {
	w.dev = d
	w.limit.Store(d.config.KernelTimeout)
	w.timer = time.AfterFunc(time.Hour, w.look)
	w.timer.Stop()
}

// LimitKernels implements accel.Controller.
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

func (w *watchdog) begin(k *watched, now int64) {
	if w.limit.Load() <= 0 {
		return
	}
	k.meter.Reset()
	k.since.Store(now)
	w.arm()
}

func (k *watched) end() { k.since.Store(0) }

func (w *watchdog) arm() {
	if !w.armed.Load() && w.armed.CompareAndSwap(false, true) {
		w.sleep(0)
	}
}

// sleep sets the timer for the next look. computed is the most processor time that a running kernel has used, as far as
// it was measured. The timer is set to the rest of the limit, but to no more than limit/unmeasured. If computed has
// reached the limit, sleep returns true and leaves the timer.
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
	if computed, any := w.measure(); any {
		if w.sleep(computed) {
			w.expire()
			w.sleep(0)
		}
		return
	}
	w.armed.Store(false)
	if _, any := w.measure(); any { // a kernel began meanwhile, when the timer was armed
		w.arm()
	}
}

// measure starts measuring kernels that have run for a while. It returns the most that one has computed, and whether
// there is any.
func (w *watchdog) measure() (most int64, any bool) {
	d := w.dev
	now := d.clock()
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, m := range d.executors[engine.Compute].members {
		k := &m.watched
		since := k.since.Load()
		if since == 0 {
			continue
		}
		any = true
		if !k.meter.On() && now-since >= w.limit.Load()/unmeasured {
			k.meter.Start()
		}
		most = max(most, k.meter.Computed())
	}
	return most, any
}

// expire cancels the kernels that have computed for too long, if they still run.
func (w *watchdog) expire() {
	d := w.dev
	e := d.executors[engine.Compute]
	hit := false
	d.mu.Lock()
	for _, m := range e.members {
		k := &m.watched
		since := k.since.Load()
		if m.node != nil && since != 0 && k.meter.Computed() >= w.limit.Load() && k.since.CompareAndSwap(since, 0) {
			hit = true
			m.timely.Store(false)
			m.cancel.Store(true)
		}
	}
	d.mu.Unlock()
	if hit { // the end of a kernel reports its position; one that doesn't end is no reason to wait
		e.alert()
		time.AfterFunc(endPatience, d.timedOut)
	}
}

// endPatience is how long a kernel that was cancelled may take to end.
const endPatience = 500 * time.Millisecond

// timedOut reports that work has to be ended because it computed for too long.
func (d *Device) timedOut() {
	if d.config.OnTimeout != nil {
		d.config.OnTimeout()
	}
}
