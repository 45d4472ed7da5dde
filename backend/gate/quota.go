package gate

import (
	"errors"
	"math/rand/v2"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"pegasus/callbuf"
)

// Pool is a kind of memory that has a quota.
type Pool int

const (
	DeviceMemory Pool = iota
	HostMemory
	numPools
)

// What a domain holds is the sum of its workers' slots and of its device segments;
// no total is kept. A worker compares the sum with the quota and changes its own
// slot under a lock that names its holder, so a worker may be killed at any
// instruction, and the daemon clears a dead worker's slot without the lock.

// Reserve takes bytes from a pool, or returns ErrQuota and takes nothing.
func (m *Member) Reserve(p Pool, bytes uint64) error {
	m.lock()
	defer m.unlock()
	mine := &m.slot.memory[p]
	used, quota := m.page.Memory(p)
	if bytes > quota || used > quota-bytes {
		return ErrQuota
	}
	mine.Store(mine.Load() + bytes)
	return nil
}

// Return gives bytes back to a pool. More than was reserved is our bug, and is
// cut to what was.
func (m *Member) Return(p Pool, bytes uint64) {
	m.lock()
	defer m.unlock()
	mine := &m.slot.memory[p]
	mine.Store(mine.Load() - min(bytes, mine.Load()))
}

// What is counted of device memory that left the accelerator for others.
const (
	swapAway     = iota // bytes that are not on it now
	swapOutBytes        // that ever left it
	swapInBytes         // that ever came back
	swapOuts            // how often something left it
	swapIns
	numSwapCounts
)

// Swap is device memory of a worker that left the accelerator for that of others.
type Swap struct {
	Away              uint64 // bytes that are not on it now
	OutBytes, InBytes uint64 // that ever left it, and came back
	Outs, Ins         uint64 // how many pieces of memory that were
}

// Swapped counts device memory that left the accelerator, or came back, and notes how
// much is away from it. Any goroutine may call it.
func (m *Member) Swapped(out, in, away uint64) {
	s := &m.slot.swap
	s[swapAway].Store(away)
	if out > 0 {
		s[swapOutBytes].Add(out)
		s[swapOuts].Add(1)
	}
	if in > 0 {
		s[swapInBytes].Add(in)
		s[swapIns].Add(1)
	}
}

func (s *slot) swapped() Swap {
	return Swap{s.swap[swapAway].Load(), s.swap[swapOutBytes].Load(), s.swap[swapInBytes].Load(), s.swap[swapOuts].Load(), s.swap[swapIns].Load()}
}

// Memory is what the domain holds of a pool and what it may hold.
func (m *Member) Memory(p Pool) (used, quota uint64) { return m.page.Memory(p) }

// Memory is what the domain holds of a pool and what it may hold.
func (p *Page) Memory(k Pool) (used, quota uint64) {
	taken := p.at.taken()
	for i := range taken {
		used += taken[i].memory[k].Load()
	}
	if k == DeviceMemory {
		used += p.SegmentBytes()
	}
	return used, p.at.memory[k].quota.Load()
}

// SetQuota sets how much a domain may hold. Less than it holds already is
// allowed: it gets nothing new until it has given enough back.
func (p *Page) SetQuota(k Pool, bytes uint64) { p.at.memory[k].quota.Store(bytes) }

// lockSlice is after how long a waiter looks whether the holder still lives.
const lockSlice = 10 * time.Millisecond

// daemonHolder is the daemon as the holder of the lock, and so is all above it.
const daemonHolder = Slots + 1

// succeed makes this process the daemon. What the one before held is broken here: it has ended, but its
// pid may be another's by now, and even ours.
func (p *Page) succeed() {
	p.at.daemon.Store(uint32(os.Getpid()))
	heir := daemonHolder + 1 + rand.Uint32N(1<<30) // nobody else, who may be about to break it
	if holder := p.at.lock.Load(); holder >= daemonHolder && p.at.lock.CompareAndSwap(holder, heir) {
		p.unlock()
	}
}

func (m *Member) lock() {
	m.mu.Lock()
	m.page.lock(uint32(m.index)+1, Forever)
}

func (m *Member) unlock() {
	m.page.unlock()
	m.mu.Unlock()
}

// lock blocks until the caller holds the lock and reports whether it does: until
// (CLOCK_MONOTONIC ns) bounds the wait, whatever workers write into the lock word.
func (p *Page) lock(me uint32, until int64) bool {
	w := &p.at.lock
	for !w.CompareAndSwap(0, me) {
		if Now() >= until {
			return false
		}
		holder := w.Load()
		if holder == 0 {
			continue
		}
		p.at.lockWaiters.Add(1)
		callbuf.FutexWait(w, holder, lockSlice)
		p.at.lockWaiters.Add(^uint32(0))
		if w.Load() == holder && p.dead(holder) && w.CompareAndSwap(holder, me) {
			return true
		}
	}
	return true
}

func (p *Page) unlock() {
	p.at.lock.Store(0)
	if p.at.lockWaiters.Load() != 0 {
		callbuf.FutexWake(&p.at.lock, 1)
	}
}

// dead says whether a holder of the lock is gone.
func (p *Page) dead(holder uint32) bool {
	var pid uint32
	switch {
	case holder >= daemonHolder:
		pid = p.at.daemon.Load()
	default:
		pid = p.at.slot[holder-1].pid.Load()
	}
	return pid == 0 || errors.Is(unix.Kill(int(pid), 0), unix.ESRCH)
}
