//go:build cgo

package nvidia

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"pegasus/accel/nvidia/driver"
	"pegasus/accel/residence"
	"pegasus/cuda"
)

// Allocations may be evicted while other processes need device memory: then their blocks are in host memory and
// unmapped; the process keeps their addresses. Package residence decides which allocations are evicted, and when. A
// driver may execute submitted work at any time, and a kernel may access any allocation; so package residence treats
// all work that may access device memory as a kernel, from before its submission to the driver until it has ended. Work
// that the driver has never waits for memory: the submitter waits before it submits.
//
// The submitter must not wait while submitted work depends on the guest, which may itself be waiting for the submitter:
// on a host function, or a word that is yet to be written. While the process has work that depends on the guest, all of
// its memory is pinned to the device, so that work is submitted without a check, and other processes skip it when they
// choose a victim.
//
// Memory other than allocations (arrays, mappings of the guest, memory of other processes, the contexts' own) is never
// evicted.

// Swap is the configuration of eviction.
type Swap struct {
	Ledger MemoryLedger
	Moved  residence.Moved
}

// MemoryLedger is this process's entry among the processes that share the device's memory.
type MemoryLedger interface {
	residence.Ledger
	// Reserve reserves n bytes of the memory of all processes, on the device or evicted.
	Reserve(n uint64) bool
	Unreserve(n uint64)
	// Pin marks n of these bytes as never leaving the device, if that leaves room for the memory of any one process.
	Pin(n uint64) bool
	Unpin(n uint64)
	// Turn blocks until no other process is making room, and returns a function that ends the turn; it returns nil if
	// stop was set, which Hurry makes it check. One goroutine calls it at a time.
	Turn(stop *atomic.Bool) (over func())
	Hurry()
}

// swap evicts and restores allocations, and tracks where they are.
type swap struct {
	dev    *Device
	store  *mapped
	ledger MemoryLedger
	set    *residence.Set
	quota  func(int64) bool // the domain's, or nil
	turns  sync.Mutex       // one turn at a time
	moved  atomic.Int64     // ns spent on restoring blocks
	asks   bool             // the current allocation may make others give up room; owned by the poller
}

var _ residence.Store = (*swap)(nil)

// ErrCannotSwap is returned when eviction is configured and the driver does not map memory at addresses that can be
// kept.
var ErrCannotSwap = errors.New("swap: the driver cannot map memory at fixed addresses; remove swap")

func (d *Device) startSwapping() error {
	m, ok := d.store.(*mapped)
	if !ok {
		return ErrCannotSwap
	}
	m.mu.Lock()
	m.begin(nil, d.log)
	ready := m.ready
	m.mu.Unlock()
	if !ready {
		return fmt.Errorf("%w, or free %d bytes of addresses from %#x on", ErrCannotSwap, m.bytes, m.base)
	}
	s := &swap{dev: d, store: m, ledger: d.config.Swap.Ledger, quota: d.config.Quota}
	s.set = residence.New(s, s.ledger, d.config.Swap.Moved)
	m.swap, d.swap, d.config.Quota = s, s, s.takeFixed
	return nil
}

func (d *Device) stopSwapping() {
	if d.swap != nil {
		d.swap.set.Close()
	}
}

// hurrySwapping wakes waiting goroutines to check whether the device is aborted.
func (d *Device) hurrySwapping() {
	if d.swap != nil {
		d.swap.ledger.Hurry()
		d.swap.set.Look()
	}
}

// Evicted returns the bytes of the process's memory that are not on the device.
func (d *Device) Evicted() uint64 {
	if d.swap == nil {
		return 0
	}
	return d.swap.set.Away()
}

// inTurn runs f while no other process is making room. It returns false if the device was aborted.
func (s *swap) inTurn(f func()) bool {
	s.turns.Lock()
	defer s.turns.Unlock()
	over := s.ledger.Turn(&s.dev.aborted)
	if over == nil {
		return false
	}
	defer over()
	f()
	return true
}

// maxRoomWait is for how long work waits for room that other processes occupy while their kernels run.
const maxRoomWait = time.Minute

// enter restores all evicted memory, and keeps it resident until exit. It is called before an operation is submitted to
// the driver, and may block.
func (c *Context) enter(p *inflightOp) cuda.Result {
	s := c.dev.swap
	if s == nil {
		return cuda.Success
	}
	had, r := s.enter(c)
	p.ctx, p.entered, p.delayed = c, r == cuda.Success, had
	return r
}

// exit is called when the operation has ended, or will never begin.
func (p *inflightOp) exit() {
	if p.entered {
		p.entered = false
		p.ctx.dev.swap.set.End(true)
	}
}

// withAll runs f, which passes allocations to the driver, while all are on the device.
func (c *Context) withAll(f func() cuda.Result) cuda.Result {
	s := c.dev.swap
	if s == nil {
		return f()
	}
	if _, r := s.enter(c); r != cuda.Success {
		return r
	}
	defer s.set.End(true)
	return f()
}

// ask runs f, which requests room from other processes, in turn, and repeats it while they use their memory: between
// two runs other processes get their turn.
func (s *swap) ask(f func() error) error {
	err := residence.ErrInUse
	for end := time.Now().Add(maxRoomWait); errors.Is(err, residence.ErrInUse) && time.Now().Before(end); {
		if !s.inTurn(func() { err = f() }) {
			return residence.ErrNoRoom
		}
	}
	return err
}

// enter returns how long memory was being restored: that time is charged, unlike waiting for other processes.
func (s *swap) enter(c *Context) (had int64, r cuda.Result) {
	d := s.dev
	if s.set.Wanted() && !d.dependent() {
		s.set.Yield(d.aborted.Load)
	}
	if s.set.TryBegin(true) {
		return 0, cuda.Success
	}
	vain := func() bool { return d.aborted.Load() || c.Err() != cuda.Success } // no room is made for work that is going to fail
	err := s.ask(func() error {
		from := s.moved.Load()
		defer func() { had += s.moved.Load() - from }()
		return s.set.BeginKernel(vain)
	})
	switch {
	case err == nil:
		return had, cuda.Success
	case c.Err() != cuda.Success:
		return 0, c.Err()
	}
	d.log.Warn("work refused: its memory cannot be restored to the device", "bytes", d.Evicted(), "err", err)
	return 0, cuda.ErrorOutOfMemory
}

// dependent reports whether submitted work depends on the guest.
func (d *Device) dependent() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for c := range d.contexts {
		for s := range c.active {
			for p := s.first; p != nil; p = p.next {
				if p.depends || p.waits != nil {
					return true
				}
			}
		}
	}
	return false
}

// errTurn means that an operation needs memory at once, for which other processes have to make room.
const errTurn = cuda.ErrorNotReady

// allocating runs f, which allocates, while no memory is moved; if f has to request room, it runs again in this
// process's turn. It may block.
func (d *Device) allocating(f func() cuda.Result) cuda.Result {
	s := d.swap
	if s == nil {
		return f()
	}
	r := s.still(f)
	if r != errTurn {
		return r
	}
	r = cuda.ErrorDeinitialized
	s.inTurn(func() {
		s.asks = true
		r = s.still(f)
		s.asks = false
	})
	return r
}

func (s *swap) still(f func() cuda.Result) cuda.Result {
	s.set.Begin()
	defer s.set.End(false)
	return f()
}

// beginOther prevents all moves until the function that it returns is called.
func (d *Device) beginOther() (over func()) {
	s := d.swap
	if s == nil {
		return func() {}
	}
	s.set.Begin()
	return func() { s.set.End(false) }
}

// quotaOfAllocations returns the quota that accounts for the size of allocations; their blocks are accounted for
// separately. It may be nil.
func (d *Device) quotaOfAllocations() func(int64) bool {
	if d.swap != nil {
		return d.swap.quota
	}
	return d.config.Quota
}

// domain applies a change to the domain's quota.
func (s *swap) domain(delta int64) bool { return s.quota == nil || s.quota(delta) }

// takeFixed applies a change to the quota of memory that never leaves the device. It may block while others make room.
func (s *swap) takeFixed(delta int64) bool {
	if delta < 0 {
		n := uint64(-delta)
		s.ledger.Vacate(n)
		s.ledger.Unpin(n)
		s.ledger.Unreserve(n)
		return s.domain(delta)
	}
	n := uint64(delta)
	if !s.domain(delta) {
		return false
	}
	if s.ledger.Reserve(n) {
		if s.ledger.Pin(n) {
			if s.claim(n) {
				return true
			}
			s.ledger.Unpin(n)
		}
		s.ledger.Unreserve(n)
	}
	s.domain(-delta)
	return false
}

func (s *swap) claim(n uint64) bool {
	if s.ledger.Occupy(n) {
		return true
	}
	return s.ask(func() error { return s.set.Claim(n, s.dev.aborted.Load) }) == nil
}

// createCounted creates memory that is accounted for already, for which others may still have to make room.
func (d *Device) createCounted(n uint64) (h driver.Physical, r cuda.Result) {
	h, r = driver.CreateMemory(nil, d.index, n)
	if s := d.swap; s != nil && r == cuda.ErrorOutOfMemory {
		s.inTurn(func() {
			s.set.Claim(0, d.aborted.Load) // not for n: the accounted memory fits as soon as all of it does
			h, r = s.patiently(func() (driver.Physical, cuda.Result) { return driver.CreateMemory(nil, d.index, n) })
		})
	}
	return h, r
}

// obtain creates a block: one without room on the device begins in host memory. The store's mutex is held, and moves
// are prevented.
func (s *swap) obtain(b *block) (r cuda.Result) {
	if !s.ledger.Reserve(b.bytes) {
		return cuda.ErrorOutOfMemory
	}
	if s.asks {
		if s.set.Add(b.at, b.bytes, false, s.dev.aborted.Load) != nil {
			r = cuda.ErrorOutOfMemory
		}
	} else if !s.set.TryAdd(b.at, b.bytes) {
		r = errTurn
	}
	if r != cuda.Success {
		s.ledger.Unreserve(b.bytes)
		return r
	}
	if b.away = s.set.Absent(b.at); b.away {
		return cuda.Success
	}
	if b.h, r = s.create(b); r != cuda.Success {
		s.set.Remove(b.at)
		s.ledger.Unreserve(b.bytes)
	}
	return r
}

// dispose frees a block. The store's mutex is held, and moves are prevented.
func (s *swap) dispose(b *block) cuda.Result {
	if !b.away {
		if r := driver.Unmap(nil, b.at, b.bytes, b.h); r != cuda.Success { // not in the context: in one that has failed every call fails
			return r
		}
	}
	b.drop()
	s.set.Remove(b.at)
	s.ledger.Unreserve(b.bytes)
	return cuda.Success
}

// drop frees the copy in host memory.
func (b *block) drop() {
	if b.copy != nil {
		unix.Munmap(b.copy)
		b.copy = nil
	}
}

// clearAway clears evicted memory. It returns false if the memory is on the device.
func (d *Device) clearAway(s *span) bool {
	if d.swap == nil {
		return false
	}
	m := d.swap.store
	m.mu.Lock()
	defer m.mu.Unlock()
	b := m.blockOf(s.at, s.held)
	if b == nil || !b.away {
		return false
	}
	if b.copy != nil {
		clear(b.copy[s.at-b.at:][:s.held])
	}
	return true
}

// createTries is the number of attempts to allocate memory that other processes of the device have left: the driver may
// be late in reclaiming the memory of dead processes, and the area reserved for evicted memory takes a moment to empty.
const (
	createTries = 60
	createPause = 50 * time.Millisecond
)

// create allocates the memory of a block from the driver, and maps it.
func (s *swap) create(b *block) (driver.Physical, cuda.Result) {
	return s.patiently(func() (driver.Physical, cuda.Result) { return driver.Map(nil, s.store.index, b.at, b.bytes) })
}

// patiently repeats an allocation of the driver while it fails with out of memory.
func (s *swap) patiently(ask func() (driver.Physical, cuda.Result)) (h driver.Physical, r cuda.Result) {
	for range createTries {
		if h, r = ask(); r != cuda.ErrorOutOfMemory || s.dev.aborted.Load() {
			break
		}
		time.Sleep(createPause)
	}
	return h, r
}

// mover returns a context to copy memory with; nil: all have failed, or are being destroyed. It exists as long as no
// request may begin.
func (s *swap) mover() *Context {
	d := s.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	for c := range d.contexts {
		if !c.destroyed.Begun && c.Err() == cuda.Success {
			return c
		}
	}
	return nil
}

var errNoMover = errors.New("move device memory: no context")

// find returns the block at an address. No other goroutine uses the block meanwhile.
func (s *swap) find(at uint64) (*block, error) {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	b := s.store.blocks[at]
	if b == nil {
		return nil, fmt.Errorf("move device memory at %#x: no such allocation", at)
	}
	return b, nil
}

// put records the location of a block.
func (s *swap) put(b *block, away bool, h driver.Physical) {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	b.away, b.h = away, h
}

// Evict copies a block to host memory, and releases its device memory. If that fails the block is unchanged.
func (s *swap) Evict(at, n uint64) error {
	b, err := s.find(at)
	if err != nil {
		return err
	}
	c := s.mover()
	if c != nil { // else its contents can no longer be read, while others need the room
		if err := s.save(c, b); err != nil {
			return err
		}
	}
	if r := driver.UnmapMemory(nil, at, n); r != cuda.Success { // not in the context, which may have failed
		if b.drop(); c != nil {
			c.failIfSticky(r)
		}
		s.dev.log.Error("unmap evicted device memory", "bytes", n, "err", r)
		return r
	}
	if r := driver.ReleaseMemory(nil, b.h); r != cuda.Success {
		s.dev.log.Error("release evicted device memory", "bytes", n, "err", r)
	}
	s.put(b, true, 0)
	return nil
}

// save copies a block to host memory.
func (s *swap) save(c *Context, b *block) error {
	mem, err := unix.Mmap(-1, 0, int(b.bytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return fmt.Errorf("allocate %d bytes of host memory for eviction: %w", b.bytes, err)
	}
	unix.Madvise(mem, unix.MADV_HUGEPAGE) // huge pages are faster to allocate
	b.copy = mem
	if r := c.copyAway(mem, b.at); r != cuda.Success {
		b.drop()
		s.dev.log.Error("evict device memory", "bytes", b.bytes, "err", c.failIfSticky(r))
		return r
	}
	return nil
}

// Retrieve restores a block to the device. If that fails the block is unchanged.
func (s *swap) Retrieve(at, n uint64) error {
	b, err := s.find(at)
	if err != nil {
		return err
	}
	c := s.mover()
	if c == nil {
		return errNoMover
	}
	from := s.dev.clock()
	defer func() { s.moved.Add(s.dev.clock() - from) }()
	h, r := s.create(b)
	if r != cuda.Success {
		return fmt.Errorf("allocate %d bytes of device memory that the accelerator's processes have released: another program uses the device: %w", n, r)
	}
	if b.copy != nil {
		r = c.copyBack(at, b.copy)
	} else if r = driver.Fill(c.ctx, at, 0, 0, 1, n, 1, c.aside); r == cuda.Success {
		r = driver.SyncStream(c.ctx, c.aside)
	}
	if r != cuda.Success {
		driver.Unmap(nil, at, n, h)
		return fmt.Errorf("restore %d bytes to the device: %w", n, c.failIfSticky(r))
	}
	b.drop()
	s.put(b, false, h)
	return nil
}
