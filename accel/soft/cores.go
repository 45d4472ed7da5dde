package soft

import (
	"slices"
	"sync"
	"sync/atomic"

	"pegasus/accel/soft/engine"
)

const (
	// mostKernels is the number of kernels up to which a crew may have more than there are cores. It bounds the memory of
	// kernels that wait for a core.
	mostKernels = 16
	// coreSlice is the time, in ns, for which a kernel keeps a core while a kernel of the crew waits for one.
	coreSlice = 1_000_000
)

// coreQueue has the goroutines of a crew's kernels that have ceded their cores, in the order in which they get cores again.
// A crew has as many kernels as find a core, and more when some of them only poll: the core of such a kernel is ceded to the
// next kernel in the executor's queue, and all take turns from then on. The executor's mu guards the queue.
//
// A goroutine also continues, without a core, when it has to reach a check: at the end of the crew's turn, and when its kernel
// is cancelled. If the kernel continues after that, one that finds too many cores in use cedes its own.
type coreQueue struct {
	waits  []*coreWait
	spare  []*coreWait
	polled atomic.Int64 // when a core has last reported that its kernel only polls; 0: none has
}

// coreWait is a goroutine that has ceded its core.
type coreWait struct {
	m       *member
	wake    sync.Cond
	granted bool
}

// coreShare is what a member's kernel has of the cores. The executor's mu guards the fields without another guard.
type coreShare struct {
	has   int          // cores of the kernel now
	got   int64        // when one of its goroutines got a core again
	none  int64        // since when it has none
	retry atomic.Int64 // when it may offer a core again
}

// mustCede reports whether m's kernel has to cede a core: others wait and it has used its time, or the crew uses more
// cores than there are. mu is held.
func (m *member) mustCede(now int64) bool {
	e := m.e
	return len(e.crew) > 1 && (len(e.waits) > 0 && now-m.got >= coreSlice || e.used() > e.dev.config.Cores)
}

// cedeInTurn makes a core of m's kernel wait for its turn.
func (m *member) cedeInTurn(now int64) {
	e := m.e
	e.mu.Lock()
	defer e.mu.Unlock()
	if m.mustCede(now) {
		w := m.cede(now)
		e.grant()
		e.awaitCore(w)
	}
}

// used returns the number of cores that the crew uses. mu is held.
func (e *executor) used() (n int) {
	for _, m := range e.crew {
		n += m.has
	}
	return n
}

// offer is called by a core of the member's kernel that only polls. It cedes the core if the next kernel in the queue may
// then join the crew.
func (m *member) offer() {
	e := m.e
	now := e.dev.clock()
	e.polled.Store(now)
	if !e.waited.Load() || e.open.Load() != shared || now < m.retry.Load() {
		return
	}
	e.dev.mu.Lock()
	w := e.makeRoom(m, now)
	if w != nil {
		e.rouse()
		e.spread() // grants the core if the kernel may not join any more: there may be no later occasion
	}
	e.dev.mu.Unlock()
	if w == nil {
		m.retry.Store(now + coreSlice)
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.awaitCore(w)
}

// pollingFor is the time, in ns, after a core has last reported that it only polls, until which Polling returns true: for
// about as long as such a core may be without its turn.
const pollingFor = mostKernels * coreSlice

// Polling implements accel.WaitFinder.
func (d *Device) Polling() bool {
	at := d.executors[engine.Compute].polled.Load()
	return at != 0 && d.clock()-at < pollingFor
}

// makeRoom cedes a core of m's kernel if the next kernel in the queue may then join. d.mu is held.
func (e *executor) makeRoom(m *member, now int64) *coreWait {
	n := e.head().head
	if n == nil || n.kind != kernelNode {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	m.has--
	may := e.joins(n)
	m.has++
	if !may {
		return nil
	}
	return m.cede(now)
}

// cede takes a core from m's kernel, and enqueues a goroutine for another one. mu is held.
func (m *member) cede(now int64) *coreWait {
	e := m.e
	m.lose(now)
	var w *coreWait
	if n := len(e.spare); n > 0 {
		w = e.spare[n-1]
		e.spare = e.spare[:n-1]
	} else {
		w = &coreWait{wake: sync.Cond{L: &e.mu}}
	}
	w.m, w.granted = m, false
	e.waits = append(e.waits, w)
	return w
}

// awaitCore blocks a goroutine that has ceded its core until it gets one, or has to reach a check. mu is held, but not
// meanwhile.
func (e *executor) awaitCore(w *coreWait) {
	m := w.m
	for !w.granted && !e.due.Load() && !m.stopped() {
		w.wake.Wait()
	}
	now := e.dev.clock()
	if !w.granted {
		i := slices.Index(e.waits, w)
		e.waits = slices.Delete(e.waits, i, i+1)
		m.regain(now)
	}
	m.got = now
	w.m = nil
	e.spare = append(e.spare, w)
}

// coreLeft is called when a core of the member's kernel has nothing to do any more. Goroutines that wait may have it: if it
// still counted, all cores could be counted for nothing while those goroutines wait.
func (m *member) coreLeft() {
	e := m.e
	e.mu.Lock()
	defer e.mu.Unlock()
	m.lose(e.dev.clock())
	e.grant()
}

// lose takes a core from m's kernel. mu is held.
func (m *member) lose(now int64) {
	if m.has--; m.has == 0 {
		m.none = now
	}
}

// regain gives m's kernel a core. mu is held.
func (m *member) regain(now int64) {
	if m.has++; m.has == 1 {
		m.paused += now - m.none
	}
}

// grant gives free cores to the goroutines that have waited for longest. mu is held.
func (e *executor) grant() {
	if len(e.waits) == 0 {
		return
	}
	now := e.dev.clock()
	for free := e.free(); free > 0 && len(e.waits) > 0; free-- {
		w := e.waits[0]
		e.waits = slices.Delete(e.waits, 0, 1)
		w.granted = true
		w.m.regain(now)
		w.wake.Signal()
	}
}

// checkWaits makes all goroutines that wait for a core check whether they are to go on without one. mu is held.
func (e *executor) checkWaits() {
	for _, w := range e.waits {
		w.wake.Signal()
	}
}
