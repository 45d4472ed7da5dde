package soft

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"pegasus/accel"
	"pegasus/accel/soft/lane"
	"pegasus/cuda"
)

const (
	// sliceNs is after how long, in ns, a copy or fill releases the engine before it continues.
	sliceNs = 2_000_000
	// spendEvery is the interval, in ns, at which the time of a running kernel is charged.
	spendEvery = 2_000_000
)

// hold is an executor's hold of its engine, and the crew of members that share it. The crew holds one ticket: the first member
// acquires the engine, and the last one to leave releases it. The first of those that are there pays: all time of the hold is
// charged to one member or another. mu is taken after d.mu, if both.
type hold struct {
	open atomic.Uint32 // closed, lone or shared
	due  atomic.Bool   // the turn of the crew is over: its kernels are to stop

	mu      sync.Mutex // guards the fields below; unless the crew is shared, the leader alone uses it while none of its cores runs
	crew    []*member  // in the order in which they joined
	leader  *member    // the member for which the engine was acquired; nil: it has left
	held    bool       // the engine is held
	entered bool       // evictions are prevented, see enter
	got     int64      // when the engine was acquired
	since   int64      // start of the use that is yet to be charged
	settled int64      // until then kernels keep the engine if their memory had to be restored first: for as long as the restore took

	coreQueue

	changed sync.Cond // signals: members stand, leave or are cancelled, or a pause has ended
	handing bool      // a waiting member releases the engine, or acquires it
	pauses  uint64    // that have ended
}

// Whether kernels may join a crew.
const (
	closed uint32 = iota
	lone          // they may, and none has tried
	shared        // they may, and one has tried
)

// lead acquires the engine for a node. The node's member then forms the crew. lead returns false when the device
// closes, or the page of the domain is damaged.
func (e *executor) lead(m *member, n *node) bool {
	since, ok := e.acquire(m, n, false)
	if ok {
		e.form(m, n, since)
	}
	return ok
}

// form makes a member the crew that has held the engine since the given time.
func (e *executor) form(m *member, n *node, since int64) {
	m.began, m.has, m.got, m.stands = since, e.coresOf(n), since, false
	e.crew, e.leader = append(e.crew[:0], m), m
	e.held, e.got, e.since = true, since, since
	if e.due.Load() {
		e.due.Store(false)
	}
}

// coresOf returns the number of cores that a node can use.
func (e *executor) coresOf(n *node) int {
	if n.kind != kernelNode {
		return 1
	}
	g := n.launch.grid
	return int(min(uint64(e.dev.config.Cores), uint64(g[0])*uint64(g[1])*uint64(g[2])))
}

// acquire waits for n's turn and for the engine, and returns since when that has been held. It returns false when the
// device closes, or the page of the domain is damaged; for a member that resumes, also when the member is to end.
func (e *executor) acquire(m *member, n *node, resumes bool) (since int64, ok bool) {
	turn, w := e.dev.config.Turn, e.dev.worker
	if turn != nil {
		turn.Queued(n.class, 1)
		defer turn.Queued(n.class, -1)
	}
	for {
		if turn != nil {
			turn.Await(n.class, m.stopped)
		}
		if resumes && m.stopped() {
			return 0, false
		}
		if since, ok = w.Acquire(e.token, &e.dev.closing); !ok {
			return 0, false
		}
		// The turn may have ended while other workers of the domain had the engine.
		if turn == nil || turn.Held(n.class) || m.stopped() {
			return since, true
		}
		e.giveBack(n, since)
	}
}

// giveBack releases an engine that was acquired in vain, and charges the time since then to n.
func (e *executor) giveBack(n *node, since int64) {
	end := max(e.dev.clock(), since+1)
	n.charge(accel.Usage{Class: n.class, Start: since, End: end})
	e.dev.worker.ReleaseAt(e.token, end)
}

// tryAcquire acquires the engine for the submitter, which has just passed the gate, if it need not wait.
func (e *executor) tryAcquire(m *member, n *node) bool {
	since, ok := e.dev.worker.TryAcquire(e.token)
	if !ok {
		return false
	}
	if !e.mayEnter(n) {
		e.giveBack(n, since)
		return false
	}
	e.form(m, n, since)
	return true
}

// admit lets kernels join a kernel with resident memory.
func (e *executor) admit(n *node) {
	if n.kind != kernelNode || n.inline || e.most == 1 {
		return
	}
	e.open.Store(lone)
	e.recruit()
}

// recruit wakes a member to check the queue, if a kernel has waited there to join, and spreads cores.
func (e *executor) recruit() {
	if e.waited.Load() || e.open.Load() == shared {
		e.dev.mu.Lock()
		e.waited.Store(false)
		e.rouse()
		e.spread()
		e.dev.mu.Unlock()
	}
}

// spread assigns cores that no kernel has, and that no waiting one can get, to the kernels that joined with too few.
// d.mu is held.
func (e *executor) spread() {
	if e.awake > 0 || e.open.Load() != shared {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.grant()
	free := e.free()
	for _, m := range e.crew {
		if free <= 0 {
			return
		}
		added := m.growth.Add(free)
		m.has += added
		free -= added
	}
}

// free returns the number of cores that no kernel of the crew has, 0 while no kernel may join. mu is held.
func (e *executor) free() int {
	if e.open.Load() != shared || e.due.Load() {
		return 0
	}
	return e.dev.config.Cores - e.used()
}

// joins reports whether a kernel may join the crew now. There has to be a core, and fewer kernels than the bound. Once the
// leader has left, and another worker waits for the engine or for room on the device, none joins any more: so a crew that
// others wait for ends. mu is held.
func (e *executor) joins(n *node) bool {
	d := e.dev
	turn := d.config.Turn
	if n.launch.cooperative || e.free() <= 0 || len(e.crew) >= e.most || turn != nil && !turn.Held(n.class) {
		return false
	}
	return e.leader != nil || !d.worker.Awaited(e.token) && (d.residence == nil || !d.residence.Wanted())
}

// joinable reports whether a node may join the crew now. d.mu is held.
func (e *executor) joinable(n *node) bool { return e.join(nil, n) }

// join adds a member, unless it is nil, to the crew, to execute n, and reports whether that may join. d.mu is held.
func (e *executor) join(m *member, n *node) bool {
	if n.kind != kernelNode {
		return false
	}
	e.waited.Store(true)
	if !e.open.CompareAndSwap(lone, shared) && e.open.Load() != shared {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.joins(n) {
		return false
	}
	if m != nil {
		n.joined = true
		m.cores = min(e.free(), e.coresOf(n))
		now := e.dev.clock()
		m.began, m.has, m.got, m.stands = now, m.cores, now, false
		e.crew = append(e.crew, m)
	}
	return true
}

// leave removes a member from the crew after the member's node has ended for now. The last one releases the engine.
func (e *executor) leave(m *member, n *node) {
	if open := e.open.Load(); open == shared || open == lone && !e.open.CompareAndSwap(lone, closed) {
		e.mu.Lock()
		defer e.mu.Unlock()
	}
	if len(e.crew) > 1 {
		e.leaveOthers(m, n)
		return
	}
	if e.held {
		end := int64(0)
		if n.kind == kernelNode {
			end = m.ran
		}
		n.ended = e.release(end, false)
	} else { // cancelled while it waited for its turn
		n.ended = e.dev.clock()
	}
	if n.begun == 0 { // others paid
		n.begun = n.ended
	}
	e.crew = e.crew[:0]
	if e.open.Load() != closed {
		e.open.Store(closed)
	}
}

// leaveOthers is leave while others are there. mu is held.
func (e *executor) leaveOthers(m *member, n *node) {
	n.ended = e.dev.clock()
	if e.held && e.crew[0] == m {
		e.pay(n.ended, false)
	}
	if n.begun == 0 {
		n.begun = n.ended
	}
	i := slices.Index(e.crew, m)
	e.crew = slices.Delete(e.crew, i, i+1)
	e.grant()
	if e.leader == m {
		e.leader = nil
	}
	e.changed.Broadcast()
}

// pay charges the use of the engine up to now to the first of the crew. mu is held.
func (e *executor) pay(now int64, part bool) {
	n := e.crew[0].node
	u := accel.Usage{Class: n.class, Start: e.since, End: now}
	if part || n.tells || n.more {
		n.charge(u)
	} else {
		n.add(u) // which Done reports
	}
	e.since = now
}

// release charges the use of the engine up to end, or up to now if end is 0, and releases the engine. It returns the
// time of the release.
func (e *executor) release(end int64, part bool) int64 {
	e.exit(e.crew[0].node)
	if end <= e.since { // or another member has paid up to a later time
		end = e.dev.clock()
	}
	end = max(end, e.got+1) // as the engine's own accounting requires
	e.pay(end, part)
	e.held = false
	e.dev.worker.ReleaseAt(e.token, end)
	return end
}

// alert makes members with stopped kernels check whether these are cancelled.
func (e *executor) alert() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.changed.Broadcast()
	e.checkWaits()
}

// stopAll makes all kernels of the crew stop.
func (e *executor) stopAll() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.due.Store(true)
	e.checkWaits()
}

// yield reports whether a kernel of the crew is to stop, and charges the time that the crew has used meanwhile. The
// kernels' cores call it, at any time; it may block a core until others have had their turns.
func (m *member) yield() bool {
	e := m.e
	if e.due.Load() {
		return true
	}
	if !e.mu.TryLock() {
		return false // another core finds out, or this one does soon
	}
	now, turn := e.dev.clock(), e.dev.config.Turn
	spends := turn != nil && now-e.since >= spendEvery
	if spends && e.held {
		e.pay(now, true)
		e.dev.worker.Computes(now)
	}
	settles, mustCede := now < e.settled, m.mustCede(now)
	e.mu.Unlock()
	if turn != nil && !settles && !turn.Held(accel.Compute) {
		e.stopAll() // the pause at the end of the turn can't be over: this core has not stopped
		return true
	}
	if spends { // the condition that kept kernels from joining may be over
		e.recruit()
	}
	if mustCede {
		m.cedeInTurn(now)
		return e.due.Load()
	}
	return false
}

// resume blocks a member until all kernels of the crew have stopped and it is their turn again, or until the member's
// kernel is to end. No core of that kernel runs now.
func (m *member) resume() {
	from := m.e.dev.clock()
	m.stand()
	m.paused += m.e.dev.clock() - from
	m.e.recruit()
}

// stand is resume. One of the waiting members releases the engine and acquires it again.
func (m *member) stand() {
	e := m.e
	e.mu.Lock()
	defer e.mu.Unlock()
	m.stands = true
	e.changed.Broadcast()
	for mine := e.pauses; e.pauses == mine && !m.stopped(); {
		if e.handing || !e.allStand() {
			e.changed.Wait()
			continue
		}
		if e.handOn(m) {
			e.pauses++
			e.due.Store(false)
			for _, other := range e.crew {
				other.stands = false
			}
		}
		e.changed.Broadcast()
	}
	m.stands = false
}

// allStand reports whether all kernels of the crew have stopped. mu is held.
func (e *executor) allStand() bool {
	for _, m := range e.crew {
		if !m.stands {
			return false
		}
	}
	return true
}

// handOn releases the engine, if the crew still has it, and blocks until the crew has it again. It returns false if m
// has to end: m was cancelled, or the engine or room for the kernels' memory is not available. The caller holds mu;
// handOn releases it while it waits.
func (e *executor) handOn(m *member) bool {
	n, d := m.node, e.dev
	if e.held {
		e.release(0, true)
	}
	e.handing = true
	defer func() { e.handing = false }()
	failure := cuda.ErrorUnknown
	since, ok := int64(0), false
	e.unlocked(func() { since, ok = e.acquire(m, n, true) })
	if ok {
		e.held, e.got, e.since, e.leader = true, since, since, e.crew[0]
		var err error
		if e.unlocked(func() { err = e.moveIn(m) }); err == nil {
			return true
		}
		e.release(0, true)
		failure = cuda.ErrorOutOfMemory
	}
	if !m.stopped() {
		d.log.Warn("kernel ended", "work", n.describe(), "why", "not resumable after the end of its turn", "result", failure.Name())
		if d.config.OnFault != nil {
			d.config.OnFault(failure, fmt.Sprintf("%s: %s: not resumable after the end of its turn", n.describe(), failure.Name()))
		}
		n.ctx.Fail(failure)
		m.cancel.Store(true)
	}
	return false
}

// unlocked calls f without mu, which is held.
func (e *executor) unlocked(f func()) {
	e.mu.Unlock()
	defer e.mu.Lock()
	f()
}

// moveIn restores evicted memory of kernels to the device.
func (e *executor) moveIn(m *member) error {
	d := e.dev
	if d.residence == nil {
		return nil
	}
	began := d.clock()
	err := d.residence.BeginKernel(m.stopped)
	now := d.clock()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.settled = now + now - began
	e.entered = err == nil
	return err
}

// move executes a part of a copy or fill, for sliceNs. The parts may take as long as a kernel may.
func (e *executor) move(m *member, n *node, since int64) {
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
					"why", "it computed for longer than the kernel timeout", "computed", time.Duration(n.computed), "held", time.Duration(n.held))
				n.ctx.Fail(cuda.ErrorLaunchTimeout)
				d.timedOut()
			}
		}()
	}
	switch n.kind {
	case copyNode:
		n.more = !n.copy.run(d.home(n.copy.dst.mem), d.home(n.copy.src.mem), &m.cancel, e.overdue)
	case fillNode:
		if e.tile == nil {
			e.tile = make([]byte, tileBytes)
		}
		n.more = !n.fill.run(d.home(n.fill.mem), e.tile, &m.cancel, e.overdue)
	}
}
