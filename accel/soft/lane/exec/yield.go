package exec

import (
	"runtime"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// pause stops all cores of a launch in the middle of their blocks and lets them continue later. The core that finds
// that the launch is to yield leads: it waits until each other core has stopped or has no blocks left, calls
// Launch.Resume, and releases them.
type pause struct {
	due atomic.Bool // a core leads; the others stop at their next check

	mu      sync.Mutex // guards the fields below
	changed sync.Cond  // with mu: stopped, cores or number changed
	single  bool       // there is one core for good
	cores   int        // that have not left
	stopped int        // of these, without the leader
	number  uint64     // of pauses that have ended
}

// begin readies the pause for a launch on so many cores of at most that many.
func (p *pause) begin(cores, most int) {
	p.changed.L = &p.mu
	p.single, p.cores = most == 1, cores
}

// tryEnter adds a core to the launch, unless it would have to wait.
func (p *pause) tryEnter() bool {
	if !p.mu.TryLock() {
		return false
	}
	defer p.mu.Unlock()
	p.cores++
	return true
}

// stop blocks a core until the launch continues.
func (p *pause) stop(resume func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.due.Load() {
		p.stopped++
		p.changed.Broadcast()
		for mine := p.number; p.number == mine; {
			p.changed.Wait()
		}
		return
	}
	p.due.Store(true)
	for p.stopped < p.cores-1 {
		p.changed.Wait()
	}
	defer func() { // also if resume panics
		p.stopped = 0
		p.number++
		p.due.Store(false)
		p.changed.Broadcast()
	}()
	resume()
}

// leave removes a core from the launch.
func (p *pause) leave() {
	if p.single { // no other core waits for it
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cores--
	p.changed.Broadcast()
}

// Meter measures the processor time that the cores of one launch after the other take. The zero value is off.
type Meter struct {
	on   atomic.Bool
	most atomic.Int64
}

// Reset switches the meter off, for the next launch.
func (m *Meter) Reset() {
	if m.on.Load() {
		m.on.Store(false)
		m.most.Store(0)
	}
}

// Start switches the meter on: each core measures from its next check on, within about a millisecond.
func (m *Meter) Start() { m.on.Store(true) }

// On reports whether the meter was started for this launch.
func (m *Meter) On() bool { return m.on.Load() }

// Computed returns the processor time since Start of the core that has taken most, in nanoseconds.
func (m *Meter) Computed() int64 { return m.most.Load() }

func (m *Meter) add(ns int64) {
	for most := m.most.Load(); ns > most && !m.most.CompareAndSwap(most, ns); most = m.most.Load() {
	}
}

// stopwatch measures the processor time of one core, which stays on one thread meanwhile.
type stopwatch struct {
	running bool
	since   int64
}

func (s *stopwatch) measure(m *Meter) {
	now := ThreadTime()
	if !s.running {
		runtime.LockOSThread()
		s.running, s.since = true, ThreadTime()
		return
	}
	m.add(now - s.since)
}

func (s *stopwatch) stop() {
	if s.running {
		s.running = false
		runtime.UnlockOSThread()
	}
}

// ThreadTime returns the processor time that the calling thread has taken, in nanoseconds.
func ThreadTime() int64 {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts) != nil {
		return 0
	}
	return ts.Nano()
}
