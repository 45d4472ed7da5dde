// Package engine makes the engines of a software accelerator belong to one
// process at a time. Every worker process of an accelerator maps the same page
// (a sealed memfd, made by the daemon): it has one token per engine, the time for
// which each domain held the engines, the memory in use of each worker, and the
// seats of those that may spin.
//
// A token is a first-in-first-out lock across processes. A ticket is claimed
// together with its owner's name in one atomic step, so that a process may die
// between any two instructions and the others can tell whose turn it was.
// Waiters look every 50 ms whether the holder lives; the daemon calls Reap as
// soon as it sees a worker die, and then nobody waits at all.
//
// Only worker processes and the daemon map the page, never a guest.
package engine

import (
	"errors"
	"fmt"
	"hash/fnv"
	"runtime"
	"slices"
	"sync/atomic"
)

// Token names one engine.
type Token uint8

const (
	Compute Token = iota // kernels, fills and copies inside the device
	CopyIn               // host to device
	CopyOut              // device to host
	NumTokens
)

// MaxWorkers bounds the processes that share one accelerator.
const MaxWorkers = 1024

// maxSeats bounds the spinners that a page can admit.
const maxSeats = 64

const (
	magic   = 0x3130454e49474e45 // "ENGINE01"
	version = 4
)

// ErrFull is returned by Register when all worker slots are taken by live processes.
var ErrFull = errors.New("engine page: all worker slots are taken")

// Options are fixed when a page is created.
type Options struct {
	Memory   uint64 // bytes of device memory
	Swap     uint64 // bytes that all workers together may reserve beyond Memory; 0: what is reserved stays on the device
	AllCores bool   // a running kernel occupies every core of the host
	Spinners int    // threads that may spin at once, 0 for half of the host's cores
}

// fixed is what a page was made with.
type fixed struct {
	magic    uint64
	version  uint32
	allCores uint32
	memory   uint64
	seats    uint32
	_        [4]byte
	swap     uint64
}

// layout is the page. Words that different processes write are on lines of their own.
type layout struct {
	fixed
	answered atomic.Uint32 // futex: 1 while somebody sleeps until any worker has answered what it was asked
	bell     atomic.Uint32 // counts what the daemon is to see in the grants of domains' pages
	_        [16]byte
	high     atomic.Uint32 // worker slots ever used: bounds the loops over them
	_        [60]byte
	seat     [maxSeats]atomic.Uint64 // owner word of who spins there, 0 = free
	commons  [maxCommons]common
	workers  [MaxWorkers]workerSlot
	tokens   [NumTokens]tokenWords
	grants   [NumTokens]grant
	granting atomic.Int64 // until when a daemon grants engines, as far as is known; 0: nobody ever did
	_        [56]byte

	highAccount atomic.Uint32 // accounts that were ever open, with the first; 0: none was
	_           [4]byte
	lastOpened  atomic.Int64 // when the latest was opened
	_           [48]byte
	accounts    [MaxAccounts]account
}

// workerSlot belongs to one live process. An owner word is epoch<<32 | pid, and pid 0 means free. The
// epoch changes when a slot is freed; words that carry an older epoch count for nothing, so that freeing
// a dead worker's slot is one compare-and-swap, and doing it twice does no harm.
type workerSlot struct {
	owner  atomic.Uint64
	memory counted // reserved
	pinned counted // what of it never leaves the device, where there is swapping
	_      [40]byte

	// Where there is swapping: see Ledger.
	resident, stashed counted
	asked             atomic.Uint64 // epoch<<48 | pressing<<47 | bytes; 0: nothing
	used              atomic.Int64
	domain            atomic.Uint64
	guarantee         atomic.Uint64
	priority          atomic.Int32
	parked            atomic.Uint32 // futex: 1 while the worker sleeps until it is asked
	_                 [8]byte

	wants    [NumTokens]atomic.Int64 // when it last asked for each token
	executes [NumTokens]atomic.Int64 // see Executes
	account  atomic.Uint32           // that it charges
	_        [12]byte
}

// counted is epoch<<48 | bytes.
type counted struct{ atomic.Uint64 }

// of is the bytes that count for an owner.
func (c *counted) of(owner uint64) uint64 {
	v := c.Load()
	if ownerPid(owner) == 0 || uint16(v>>48) != ownerEpoch(owner) {
		return 0
	}
	return v & memoryMask
}

// Page is a mapped engine page.
type Page struct {
	fixed  fixed             // copied when the page was mapped, since any worker can write over it later
	damage [NumTokens]damage // as Mend, in the daemon, has seen it

	fd  int
	mem []byte
	l   *layout
}

// Create makes a new page in a sealed memfd.
func Create(o Options) (*Page, error) {
	if o.Spinners == 0 {
		o.Spinners = runtime.NumCPU() / 2
	}
	fd, err := newMemfd("pegasus-engine", Size)
	if err != nil {
		return nil, fmt.Errorf("create engine page: %w", err)
	}
	p, err := mapPage(fd)
	if err != nil {
		return nil, err
	}
	p.l.memory, p.l.swap = o.Memory, o.Swap
	p.l.seats = uint32(min(max(o.Spinners, 0), maxSeats))
	if o.AllCores {
		p.l.allCores = 1
	}
	for k := range p.l.tokens {
		p.l.tokens[k].init()
		p.l.grants[k].word.Store(uint64(granted(nobody)))
	}
	p.l.version = version
	p.l.magic = magic
	p.fixed = p.l.fixed
	return p, nil
}

// Open maps the page that fd refers to and takes the descriptor over.
func Open(fd int) (*Page, error) {
	if err := checkMemfd(fd, Size); err != nil {
		return nil, fmt.Errorf("engine page: %w", err)
	}
	p, err := mapPage(fd)
	if err != nil {
		return nil, err
	}
	if p.l.magic != magic || p.l.version != version {
		err := fmt.Errorf("engine page: magic %#x, version %d", p.l.magic, p.l.version)
		p.Close()
		return nil, err
	}
	p.fixed = p.l.fixed
	p.fixed.seats = min(p.fixed.seats, maxSeats)
	return p, nil
}

// FD is the page's descriptor, to be passed to workers. It stays the page's.
func (p *Page) FD() int { return p.fd }

// Memory is the size of the device memory.
func (p *Page) Memory() uint64 { return p.fixed.memory }

// Swap is how much more than that all workers together may reserve.
func (p *Page) Swap() uint64 { return p.fixed.swap }

// MemoryReserved is what all workers and domains have reserved, wherever it is.
func (p *Page) MemoryReserved() uint64 {
	return p.sum(func(s *workerSlot) *counted { return &s.memory }) + p.Commons()
}

// stays is what never leaves the device: what domains have of their own, and what workers have pinned.
func (p *Page) stays() uint64 {
	return p.Commons() + p.sum(func(s *workerSlot) *counted { return &s.pinned })
}

// MemoryUsed is what of the device memory is in use.
func (p *Page) MemoryUsed() uint64 {
	if p.fixed.swap == 0 {
		return p.MemoryReserved()
	}
	return p.resident() + p.sum(func(s *workerSlot) *counted { return &s.stashed })
}

// DomainNumber is what the workers of an accelerator know a domain by.
func DomainNumber(name string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(name))
	return max(h.Sum64(), 1)
}

// maxCommons bounds the domains that have memory of their own on an accelerator.
const maxCommons = 256

// common is memory that belongs to a domain and not to a worker of it. Whoever
// changes it sees to it that nobody else of the domain does so meanwhile.
type common struct{ domain, bytes atomic.Uint64 }

// Commons is what all domains have of their own, in bytes.
func (p *Page) Commons() (sum uint64) {
	for i := range p.l.commons {
		sum += p.l.commons[i].bytes.Load()
	}
	return sum
}

// commonOf is the place of a domain, or a free one, which it takes; nil if there is none.
func (p *Page) commonOf(domain uint64) *common {
	for i := range p.l.commons {
		if c := &p.l.commons[i]; c.domain.Load() == domain {
			return c
		}
	}
	for i := range p.l.commons {
		if c := &p.l.commons[i]; c.domain.CompareAndSwap(0, domain) {
			return c
		}
	}
	return nil
}

// SetCommons says how many bytes a domain has of its own, beside what its workers
// have; 0 is always possible.
func (p *Page) SetCommons(domain, bytes uint64) {
	if c := p.commonOf(domain); c != nil {
		c.bytes.Store(bytes)
		if bytes == 0 {
			c.domain.Store(0)
		}
	}
}

// KeepCommons frees the places of all but these domains.
func (p *Page) KeepCommons(domains []uint64) {
	for i := range p.l.commons {
		if d := p.l.commons[i].domain.Load(); d != 0 && !slices.Contains(domains, d) {
			p.SetCommons(d, 0)
		}
	}
}

// commonBytes is what a domain has of its own.
func (p *Page) commonBytes(domain uint64) uint64 {
	for i := range p.l.commons {
		if p.l.commons[i].domain.Load() == domain {
			return p.l.commons[i].bytes.Load()
		}
	}
	return 0
}

// sum adds up a count of all workers that live.
func (p *Page) sum(of func(*workerSlot) *counted) (sum uint64) {
	for i := range p.slots() {
		s := &p.l.workers[i]
		c := of(s)
		sum += c.of(s.owner.Load())
	}
	return sum
}

// Saturated says that a kernel occupies every core, or may: whoever polls should block at once instead of spinning.
func (w *Worker) Saturated() bool {
	p := w.page
	return w.memory.page.fixed.allCores != 0 && (p.l.tokens[Compute].taken() || p.l.grants[Compute].load().mode() != present)
}

// BusyTime is how long a token has been held in total, in nanoseconds, by holders that released it or died, with what was
// charged of an engine without one.
func (p *Page) BusyTime(k Token) int64 {
	sum, _, _ := p.l.tokens[k].busy.load()
	for i := range p.openAccounts() {
		sum += p.l.accounts[i].added[k].Load()
	}
	return sum
}

// Holder is the process that holds a token now, 0 if none.
func (p *Page) Holder(k Token) int {
	t := &p.l.tokens[k]
	s := t.serving.Load()
	w := t.slot(s).word.Load()
	if !w.claims(s) {
		return 0
	}
	i, epoch := w.worker()
	return p.pidOf(i, epoch)
}

func (p *Page) pidOf(i int, epoch uint16) int {
	if i < 0 || i >= MaxWorkers {
		return 0
	}
	o := p.l.workers[i].owner.Load()
	if ownerEpoch(o) != epoch {
		return 0
	}
	return ownerPid(o)
}

// slots is the number of worker slots that were ever in use.
func (p *Page) slots() int { return int(min(p.l.high.Load(), MaxWorkers)) }

func ownerWord(epoch uint16, pid int) uint64 { return uint64(epoch)<<32 | uint64(uint32(pid)) }
func ownerPid(o uint64) int                  { return int(uint32(o)) }
func ownerEpoch(o uint64) uint16             { return uint16(o >> 32) }

const memoryMask = 1<<48 - 1
