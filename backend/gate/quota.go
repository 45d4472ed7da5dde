package gate

import (
	"errors"
	"math/rand/v2"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"pegasus/callbuf"
)

// Pool is a kind of memory with a quota.
type Pool int

const (
	DeviceMemory Pool = iota
	HostMemory
	numPools
)

// A domain's use is the sum of its workers' slots and of its device segments; no total is kept. A worker compares the
// sum with the quota and changes its own slot under a lock that identifies its holder, so a worker may be killed at any
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

// Return gives bytes back to a pool, at most the bytes reserved: more is a bug of the worker.
func (m *Member) Return(p Pool, bytes uint64) {
	m.lock()
	defer m.unlock()
	mine := &m.slot.memory[p]
	mine.Store(mine.Load() - min(bytes, mine.Load()))
}

// Indices of the counts of device memory evicted for other workers.
const (
	swapAway     = iota // bytes evicted now
	swapOutBytes        // bytes ever evicted
	swapInBytes         // bytes ever restored
	swapOuts            // number of evictions
	swapIns
	numSwapCounts
)

// Swap counts a worker's device memory that was evicted for other workers.
type Swap struct {
	Away              uint64 // bytes evicted now
	OutBytes, InBytes uint64 // bytes ever evicted and ever restored
	Outs, Ins         uint64 // number of evictions and restorations
}

// Swapped adds evicted and restored bytes to the counts and sets the bytes now evicted. Any goroutine may call it.
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

// Memory returns the domain's use of a pool and its quota, in bytes.
func (m *Member) Memory(p Pool) (used, quota uint64) { return m.page.Memory(p) }

// Memory returns the domain's use of a pool and its quota, in bytes.
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

// SetQuota sets a pool's quota. A quota below the current use is allowed: reservations then fail until the domain has
// returned enough.
func (p *Page) SetQuota(k Pool, bytes uint64) { p.at.memory[k].quota.Store(bytes) }

// lockSlice is the period at which a waiter checks that the holder is alive.
const lockSlice = 10 * time.Millisecond

// daemonHolder and all higher values mark the daemon as the holder of the lock.
const daemonHolder = Slots + 1

// succeed makes this process the daemon and breaks a lock held by the previous daemon: that process has ended, but its
// pid may belong to another process by now, or to this one.
func (p *Page) succeed() {
	p.at.daemon.Store(uint32(os.Getpid()))
	heir := daemonHolder + 1 + rand.Uint32N(1<<30) // a value of its own, distinct from a waiter that is about to break the lock
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

// lock acquires the lock and reports whether it did; until (CLOCK_MONOTONIC ns) bounds the wait, whatever workers write
// into the lock word.
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

// dead reports whether a holder of the lock has ended.
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
