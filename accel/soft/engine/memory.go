package engine

import (
	"fmt"
	"hash/fnv"
	"os"
	"runtime"
	"slices"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

const (
	// MaxWorkers bounds the processes that share one accelerator.
	MaxWorkers = 1024
	// maxSeats bounds the spinners that a page can admit.
	maxSeats = 64

	memoryMagic   = 0x3130454e49474e45 // "ENGINE01"
	memoryVersion = 4
)

// Options are fixed when the page of an accelerator is created.
type Options struct {
	Memory   uint64 // bytes of device memory
	Swap     uint64 // bytes that all workers together may reserve beyond Memory; 0: reserved memory stays on the device
	AllCores bool   // a running kernel occupies every core of the host
	Spinners int    // threads that may spin at once, 0 for half of the host's cores
}

// fixed contains the parameters of a page.
type fixed struct {
	kind
	memory   uint64
	swap     uint64
	seats    uint32
	allCores uint32
}

// memoryLayout is an accelerator's page. Words that different processes write are in separate cache lines.
type memoryLayout struct {
	fixed
	answered atomic.Uint32 // futex: 1 while a worker sleeps until any other worker has answered its request
	bell     atomic.Uint32 // futex: counts changes in domains' grants that the arbiter has to process
	_        [8]byte
	retired  atomic.Int64 // for how long domains that are gone held engines; the daemon alone writes it
	high     atomic.Uint32
	_        [60]byte
	// The time of the last sign of a running kernel, of any worker; 0: it has ended.
	computing atomic.Int64
	_         [56]byte
	seat      [maxSeats]atomic.Uint64 // owner word of the spinning worker, 0 = free
	commons   [maxCommons]common
	workers   [MaxWorkers]reserver
}

// reserver is the place of a worker in the page.
type reserver struct {
	owner  atomic.Uint64
	memory counted // reserved
	pinned counted // the part that never leaves the device, if memory can be evicted
	_      [40]byte

	// Used if memory can be evicted: see Ledger.
	resident, stashed counted
	asked             atomic.Uint64 // the request: epoch<<48 | pressing<<47 | bytes; 0: none
	used              atomic.Int64
	domain            atomic.Uint64
	guarantee         atomic.Uint64
	priority          atomic.Int32
	parked            atomic.Uint32 // futex: 1 while the worker sleeps until there is a request
	waits             atomic.Int64  // since when it waits for room; 0: it does not
}

// start initializes a place for a new owner without any memory.
func (s *reserver) start(epoch uint16) {
	none := uint64(epoch) << 48
	s.memory.Store(none)
	s.pinned.Store(none)
	s.resident.Store(none)
	s.stashed.Store(none)
	s.asked.Store(0)
	s.used.Store(0)
	s.domain.Store(0)
	s.guarantee.Store(0)
	s.priority.Store(0)
	s.waits.Store(0)
}

// counted is a number of bytes with its owner's epoch: epoch<<48 | bytes.
type counted struct{ atomic.Uint64 }

const memoryMask = 1<<48 - 1

// of returns the bytes that count for an owner.
func (c *counted) of(owner uint64) uint64 {
	v := c.Load()
	if ownerPid(owner) == 0 || uint16(v>>48) != ownerEpoch(owner) {
		return 0
	}
	return v & memoryMask
}

// Memory is the mapped page of an accelerator.
type Memory struct {
	registry
	fixed fixed // copied when the page was mapped, since any worker can overwrite the page later
	mem   []byte
	l     *memoryLayout
}

// Create creates the page of an accelerator.
func Create(o Options) (*Memory, error) {
	if o.Spinners == 0 {
		o.Spinners = runtime.NumCPU() / 2
	}
	fd, err := newMemfd("pegasus-memory", memorySize)
	if err != nil {
		return nil, fmt.Errorf("create an accelerator's page: %w", err)
	}
	m, err := mapMemory(fd)
	if err != nil {
		return nil, err
	}
	m.l.memory, m.l.swap = o.Memory, o.Swap
	m.l.seats = uint32(min(max(o.Spinners, 0), maxSeats))
	if o.AllCores {
		m.l.allCores = 1
	}
	m.l.version = memoryVersion
	m.l.magic = memoryMagic
	m.fixed = m.l.fixed
	return m, nil
}

// Open maps the page of an accelerator that fd refers to and takes ownership of the descriptor.
func Open(fd int) (*Memory, error) {
	if err := checkMemfd(fd, memorySize); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("an accelerator's page: %w", err)
	}
	m, err := mapMemory(fd)
	if err != nil {
		return nil, err
	}
	if m.l.magic != memoryMagic || m.l.version != memoryVersion {
		err := fmt.Errorf("an accelerator's page: magic %#x, version %d", m.l.magic, m.l.version)
		m.Close()
		return nil, err
	}
	m.fixed = m.l.fixed
	m.fixed.seats = min(m.fixed.seats, maxSeats)
	return m, nil
}

// OpenPages maps, in a worker, the pages of its accelerator and of its domain on it; the caller keeps ownership of the
// files. It replaces files[1], the domain's page, by a file that can only be read.
func OpenPages(files []*os.File) (m *Memory, e *Engines, err error) {
	if len(files) != 2 {
		return nil, nil, fmt.Errorf("an accelerator with %d files: want the pages of the accelerator and of the domain", len(files))
	}
	var fds [2]int
	for i, f := range files {
		if fds[i], err = unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0); err != nil {
			return nil, nil, fmt.Errorf("engine page: %w", err)
		}
	}
	if m, err = Open(fds[0]); err != nil {
		return nil, nil, err
	}
	if e, err = OpenEngines(fds[1]); err != nil {
		m.Close()
		return nil, nil, err
	}
	if err := e.onlyMap(m, &files[1]); err != nil {
		e.Close()
		m.Close()
		return nil, nil, err
	}
	return m, e, nil
}

// onlyMap closes the descriptors through which the page's file can be changed, and sets *file to a read-only one.
func (e *Engines) onlyMap(m *Memory, file **os.File) error {
	if err := e.LockIn(m); err != nil {
		return err
	}
	fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", e.fd), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open a domain's engine page for reading: %w", err)
	}
	unix.Close(e.fd)
	e.fd = -1
	(*file).Close()
	*file = os.NewFile(uintptr(fd), "engines")
	return nil
}

func (m *Memory) init(fd int) {
	m.registry = registry{fd: fd, locks: fd, places: MaxWorkers, owner: func(i int) *atomic.Uint64 { return &m.l.workers[i].owner }, release: m.release, high: &m.l.high}
}

// release frees place i if it still belongs to owner: its memory and spinning seats.
func (m *Memory) release(i int, owner uint64) {
	for k := range m.l.seat {
		m.l.seat[k].CompareAndSwap(owner, 0)
	}
	m.l.workers[i].owner.CompareAndSwap(owner, ownerWord(ownerEpoch(owner)+1, 0))
}

// FD returns the page's descriptor, to be passed to workers. The page keeps ownership.
func (m *Memory) FD() int { return m.fd }

// Size returns the size of the device memory.
func (m *Memory) Size() uint64 { return m.fixed.memory }

// Swap returns the bytes beyond Size that all workers together may reserve.
func (m *Memory) Swap() uint64 { return m.fixed.swap }

// Reserved returns the bytes that all workers and domains have reserved, on the device or off it.
func (m *Memory) Reserved() uint64 {
	return m.sum(func(s *reserver) *counted { return &s.memory }) + m.Commons()
}

// stays returns the bytes that never leave the device: domains' own memory, and workers' pinned memory.
func (m *Memory) stays() uint64 {
	return m.Commons() + m.sum(func(s *reserver) *counted { return &s.pinned })
}

// Used returns the bytes of device memory in use.
func (m *Memory) Used() uint64 {
	if m.fixed.swap == 0 {
		return m.Reserved()
	}
	return m.resident() + m.sum(func(s *reserver) *counted { return &s.stashed })
}

// Retire adds the time for which a removed domain held engines, in ns.
func (m *Memory) Retire(ns int64) { m.l.retired.Add(ns) }

// Retired returns for how long removed domains held engines, in ns.
func (m *Memory) Retired() int64 { return m.l.retired.Load() }

// Mend repairs damage that a worker has done to the page, as far as it can be detected. The daemon calls it several times a second.
func (m *Memory) Mend() {
	if m.l.fixed != m.fixed {
		m.l.fixed = m.fixed
	}
	m.mendHigh()
}

// DomainNumber returns the number of a domain in the pages of an accelerator.
func DomainNumber(name string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(name))
	return max(h.Sum64(), 1)
}

// maxCommons bounds the domains that have memory of their own on an accelerator.
const maxCommons = 256

// common is memory that belongs to a domain and not to a worker of it. A caller that changes it excludes other callers
// of the domain.
type common struct{ domain, bytes atomic.Uint64 }

// Commons returns the bytes of all domains' own memory.
func (m *Memory) Commons() (sum uint64) {
	for i := range m.l.commons {
		sum += m.l.commons[i].bytes.Load()
	}
	return sum
}

// commonOf returns the place of a domain, or a free one, which it takes; nil if there is none.
func (m *Memory) commonOf(domain uint64) *common {
	for i := range m.l.commons {
		if c := &m.l.commons[i]; c.domain.Load() == domain {
			return c
		}
	}
	for i := range m.l.commons {
		if c := &m.l.commons[i]; c.domain.CompareAndSwap(0, domain) {
			return c
		}
	}
	return nil
}

// SetCommons sets the bytes that a domain has of its own, beside its workers' memory; 0 is always possible.
func (m *Memory) SetCommons(domain, bytes uint64) {
	if c := m.commonOf(domain); c != nil {
		c.bytes.Store(bytes)
		if bytes == 0 {
			c.domain.Store(0)
		}
	}
}

// KeepCommons frees the places of all but these domains.
func (m *Memory) KeepCommons(domains []uint64) {
	for i := range m.l.commons {
		if d := m.l.commons[i].domain.Load(); d != 0 && !slices.Contains(domains, d) {
			m.SetCommons(d, 0)
		}
	}
}

// commonBytes returns the bytes of a domain's own memory.
func (m *Memory) commonBytes(domain uint64) uint64 {
	for i := range m.l.commons {
		if m.l.commons[i].domain.Load() == domain {
			return m.l.commons[i].bytes.Load()
		}
	}
	return 0
}

// sum adds up a count of all workers that live.
func (m *Memory) sum(of func(*reserver) *counted) (sum uint64) {
	for i := range m.used() {
		s := &m.l.workers[i]
		c := of(s)
		sum += c.of(s.owner.Load())
	}
	return sum
}
