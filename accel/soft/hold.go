package soft

import (
	"runtime"
	"sync"
	"time"

	"pegasus/accel"
	"pegasus/accel/soft/lane"
	"pegasus/cuda"
)

const (
	// sliceNs is after how long a copy or fill gives the engine back before it goes on.
	sliceNs = 2_000_000
	// spendEvery is after how long what a kernel has used is charged while it goes on.
	spendEvery = 2_000_000
)

// hold is an executor's hold of its engine.
type hold struct {
	node    *node // that has the engine; nil: the engine is not held
	entered bool  // its memory stays where it is, see enter
	settled int64 // until then a kernel keeps the engine whose memory had to be moved first: for as long as moving took
	paused  int64 // for how long its kernel has been interrupted

	spending sync.Mutex // guards since while a kernel runs
	since    int64      // from when on use is yet to be charged
}

// acquire waits for n's turn and for the engine. It returns false when the device closes, or the page of the domain is damaged.
func (e *executor) acquire(n *node) bool {
	turn, w := e.dev.config.Turn, e.dev.worker
	if turn != nil {
		turn.Queued(n.class, 1)
		defer turn.Queued(n.class, -1)
	}
	for {
		if turn != nil {
			turn.Await(n.class, e.stopped)
		}
		since, ok := w.Acquire(e.token, &e.dev.closing)
		if !ok {
			return false
		}
		// The turn may have ended while others of the domain had the engine.
		if turn == nil || turn.Held(n.class) || e.stopped() {
			e.node, e.since = n, since
			return true
		}
		w.Release(e.token)
	}
}

// tryAcquire takes the engine for the submitter, which has just passed the gate, if nothing has to be waited for.
func (e *executor) tryAcquire(n *node) bool {
	w := e.dev.worker
	since, ok := w.TryAcquire(e.token)
	if !ok {
		return false
	}
	if !e.mayEnter(n) {
		w.Release(e.token)
		return false
	}
	e.node, e.since = n, since
	return true
}

// release charges the use of the engine and gives the engine back, if it is held.
func (e *executor) release(n *node) {
	if e.node == nil {
		return
	}
	end := e.dev.clock()
	u := accel.Usage{Class: n.class, Start: e.since, End: end}
	if n.tells || n.more {
		n.tell(u)
	} else {
		n.add(u) // which Done tells of
	}
	e.node, n.ended = nil, end
	e.dev.worker.ReleaseAt(e.token, end)
}

// yield reports whether the kernel that runs is to give the engine back, and charges what it has used meanwhile. The kernel's
// cores call it, at any time.
func (e *executor) yield() bool {
	if !e.spending.TryLock() {
		return false // another core finds out
	}
	now := e.dev.clock()
	if n := e.node; now-e.since >= spendEvery {
		n.tell(accel.Usage{Class: n.class, Start: e.since, End: now})
		e.since = now
		e.dev.worker.Computes(now)
	}
	settles := now < e.settled
	e.spending.Unlock()
	return !settles && !e.dev.config.Turn.Held(e.node.class)
}

// resume gives the engine to others until it is the turn of the kernel again, of which no core runs now. It ends the kernel if
// the engine, or room for the kernel's memory, is not to be had any more.
func (e *executor) resume() {
	n, d := e.node, e.dev
	from := d.clock()
	defer func() { e.paused += d.clock() - from }()
	e.exit(n)
	n.tells = true
	e.release(n)
	failure := cuda.ErrorUnknown
	if !e.stopped() && e.acquire(n) {
		if d.residence == nil {
			return
		}
		err := e.moveIn()
		if e.entered = err == nil; e.entered {
			return
		}
		failure = cuda.ErrorOutOfMemory
		e.release(n)
	}
	if !e.stopped() {
		d.log.Warn("kernel ended", "work", n.describe(), "reason", "it could not go on after its turn", "result", failure.Name())
		n.ctx.fail(failure)
	}
	e.cancel.Store(true)
}

// moveIn brings the memory of a kernel back to the device.
func (e *executor) moveIn() error {
	d := e.dev
	began := d.clock()
	err := d.residence.BeginKernel(e.stopped)
	now := d.clock()
	e.settled = now + now - began
	return err
}

// move does a part of a copy or fill, for as long as sliceNs. The parts may take as long as a kernel may.
func (e *executor) move(n *node, since int64) {
	d := e.dev
	e.sliceEnd = since + sliceNs
	resumed := n.begun != 0
	if resumed {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		began := lane.ThreadTime()
		defer func() {
			n.computed += lane.ThreadTime() - began
			if limit := d.watchdog.limit.Load(); n.more && limit > 0 && n.computed > limit {
				d.log.Warn("work ended", "work", n.describe(), "result", cuda.ErrorLaunchTimeout.Name(),
					"reason", "it computed for longer than the kernel timeout", "computed", time.Duration(n.computed), "held", time.Duration(n.held))
				n.ctx.fail(cuda.ErrorLaunchTimeout)
				d.timedOut()
			}
		}()
	}
	switch n.kind {
	case copyNode:
		n.more = !n.copy.run(d.home(n.copy.dst.mem), d.home(n.copy.src.mem), &e.cancel, e.due)
	case fillNode:
		if e.tile == nil {
			e.tile = make([]byte, tileBytes)
		}
		n.more = !n.fill.run(d.home(n.fill.mem), e.tile, &e.cancel, e.due)
	}
}
