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

// Used and quota change together with the slot of whoever reserves, under a
// lock that names its holder. So a worker may be killed at any instruction: while
// it held the lock nobody else changed anything, and the sums can be made again
// from the slots.

// Reserve takes bytes from a pool, or returns ErrQuota and takes nothing.
func (m *Member) Reserve(p Pool, bytes uint64) error {
	m.lock()
	defer m.unlock()
	h, mine := &m.page.at.memory[p], &m.slot.memory[p]
	used, quota := h.used.Load(), h.quota.Load()
	if bytes > quota || used > quota-bytes {
		return ErrQuota
	}
	mine.Store(mine.Load() + bytes)
	h.used.Store(used + bytes)
	return nil
}

// Return gives bytes back to a pool. More than was reserved is our bug, and is
// cut to what was.
func (m *Member) Return(p Pool, bytes uint64) {
	m.lock()
	defer m.unlock()
	h, mine := &m.page.at.memory[p], &m.slot.memory[p]
	bytes = min(bytes, mine.Load())
	mine.Store(mine.Load() - bytes)
	h.used.Store(h.used.Load() - min(bytes, h.used.Load()))
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
	h := &p.at.memory[k]
	return h.used.Load(), h.quota.Load()
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
		p.sum()
		p.unlock()
	}
}

func (m *Member) lock() {
	m.mu.Lock()
	m.page.lock(uint32(m.index) + 1)
}

func (m *Member) unlock() {
	m.page.unlock()
	m.mu.Unlock()
}

func (p *Page) lock(me uint32) {
	w := &p.at.lock
	for !w.CompareAndSwap(0, me) {
		holder := w.Load()
		if holder == 0 {
			continue
		}
		p.at.lockWaiters.Add(1)
		callbuf.FutexWait(w, holder, lockSlice)
		p.at.lockWaiters.Add(^uint32(0))
		if w.Load() == holder && p.dead(holder) && w.CompareAndSwap(holder, me) {
			p.sum()
			return
		}
	}
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

// sum makes the totals again from the slots. The caller holds the lock.
func (p *Page) sum() {
	for k := range p.at.memory {
		var total uint64
		for i := range p.at.slot {
			total += p.at.slot[i].memory[k].Load()
		}
		if Pool(k) == DeviceMemory {
			total += p.SegmentBytes()
		}
		p.at.memory[k].used.Store(total)
	}
}
