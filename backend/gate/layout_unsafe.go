package gate

import (
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"pegasus/accel"
)

const (
	pageMagic      = 0x0031_5445_4147_4550 // "PEGATE1\0"
	pageVersion    = 7
	headerBytes    = 28672
	slotBytes      = 3072
	traceRingBytes = 64 + traceRingRecords*noteBytes
	noteBytes      = 128
	pageBytes      = headerBytes + Slots*(slotBytes+traceRingBytes)

	// traceRingRecords is how many trace records each worker keeps.
	traceRingRecords = 128

	// nameWords is how many 8-byte words of a kernel's name a trace record holds.
	nameWords = 12

	// WaitBuckets is the number of buckets of a wait histogram: bucket 0 counts requests that did not wait, bucket n
	// those that waited less than 2^n ns.
	WaitBuckets = 64
)

// Flags of a lease's terms.
const (
	termOpen     = 1 << 0
	termBudget   = 1 << 8
	termRequests = 1 << 9
)

// lease is one granted lease; terms is 0 while there is none. The daemon writes it; workers decrement budget and
// requests and add to used.
type lease struct {
	terms    atomic.Uint32
	_        [4]byte
	deadline atomic.Int64
	budget   atomic.Int64
	requests atomic.Int64
	lent     atomic.Int64 // the budget as granted; 0: there is none
	used     atomic.Int64 // ns for which engines were held since the grant
	_        [16]byte
}

// A page has one lease for all classes together, or one for each.
const numLeases = 1 + int(NumClasses)

// header is the part of a page that all workers and the daemon share: see the package comment for its writers. Each of
// its groups begins a cache line, so that the writers of one don't slow down the readers of another.
type header struct {
	identity
	state

	overrun [NumClasses]atomic.Int64 // engine ns of work that ended with the gate closed or the budget used up
	_       [48]byte

	quotas
	ends

	leases [numLeases]lease

	segments [Segments]segment

	totals
	holdings [Segments]holding

	preparation
	handling

	_ [headerBytes - 14*64 - numLeases*64 - Segments*(32+16)]byte
}

// identity is the format of a page.
type identity struct {
	magic   uint64
	version uint32
	slots   uint32
	_       [48]byte
}

// state is written by the daemon and read for each request.
type state struct {
	generation    atomic.Uint32 // futex word
	top           atomic.Uint32 // slots from here on were never taken
	aliveUntil    atomic.Int64  // 0: no daemon has sent a heartbeat yet
	inFlightLimit atomic.Int64  // predicted ns per class; 0: no limit
	noting        atomic.Uint32 // not 0: workers record each piece of work when it ends
	_             [36]byte
}

// quotas are the memory limits, and the lock of all that workers change together: counts of memory, and segments.
type quotas struct {
	lock        atomic.Uint32 // 0, or 1 + the slot of the worker that holds it; futex word
	lockWaiters atomic.Uint32
	memory      [numPools]pool
	daemon      atomic.Uint32 // pid
	_           [36]byte
}

// ends reports the ends of work to those that wait for them: requests at the limit, and the daemon.
type ends struct {
	released     atomic.Uint32 // futex word: incremented when work ends while a request waits for the limit
	limitWaiters atomic.Uint32
	watch        atomic.Uint32 // 1: the next worker that runs out of work rings the doorbell
	_            [52]byte
}

// totals describe what all workers have used together: of the segments, and of the host's log.
type totals struct {
	segmentUnit atomic.Uint64 // unit to which segment bytes are rounded up; 0: none
	logged      allowance     // for the host's log, shared by all workers
	logLost     atomic.Uint64 // bytes beyond the allowance, not yet reported
	segmentsTop atomic.Uint32 // segments from here on were never allocated
	_           [36]byte
}

// preparation limits how many workers prepare work at a time.
type preparation struct {
	preparing        [maxPreparers]atomic.Uint32 // 1 + the slot of the worker that prepares work
	preparers        atomic.Uint32               // number of preparation slots in use; 0: written by an older daemon, no limit
	_                [4]byte                     // used by earlier releases
	prepared         atomic.Uint32               // futex word: incremented when a preparation slot becomes free
	_                [4]byte
	preparersWaiting waiters
	_                [48 - Slots/8]byte
}

// handling limits how many workers handle calls at a time.
type handling struct {
	handlers        atomic.Uint32 // number of handling slots in use; 0: written by an older daemon, no limit
	_               [4]byte
	handlersWaiting waiters // read for each call
	_               [64 - 8 - Slots/8]byte
	handled         atomic.Uint32 // futex word: incremented when a handling slot becomes free
	_               [60]byte
	handling        [maxHandlers]atomic.Uint32 // 1 + the slot of the worker that handles calls
}

// segment is device memory that the domain's workers share. Workers change it under the lock.
type segment struct {
	state  atomic.Uint32 // 0: there is none
	key    atomic.Uint32 // for a loose segment, the upper half of its secret
	serial atomic.Uint32
	lower  atomic.Uint32 // lower half of the secret
	offset atomic.Uint64
	bytes  atomic.Uint64
}

// holding describes how workers pass each other a segment with its bytes in a driver's memory and not in the domain's
// file.
type holding struct {
	tag     atomic.Uint64 // by which one worker requests it from another
	claim   atomic.Uint32 // 1 + the slot of the worker that acquires or releases it; 0: none; futex word
	claimer atomic.Uint32 // that worker's pid
}

func (s *segment) secret() uint64 { return uint64(s.key.Load())<<32 | uint64(s.lower.Load()) }

func (s *segment) setSecret(n uint64) {
	s.key.Store(uint32(n >> 32))
	s.lower.Store(uint32(n))
}

// pool is one kind of memory, with the domain's quota in bytes.
type pool struct{ quota atomic.Uint64 }

// slot belongs to one worker, which alone writes it while it lives.
type slot struct {
	presence
	load
	consumption

	waits [WaitBuckets]atomic.Uint64

	attached [Segments]atomic.Uint32 // number of the worker's attachments of each segment

	standing atomic.Int64 // since when a request waits for admission; 0: none does

	holds [Segments / 64]atomic.Uint64 // a bit for each segment of which the worker has the memory, and exports it to others

	guest atomic.Uint32 // pid of the process that the worker serves; 0: none of this host

	offers atomic.Uint32 // address at which other workers request those segments

	dependent atomic.Uint32 // not 0: its work in flight may depend on its guest

	queued [NumClasses]atomic.Uint32 // admitted requests that wait for their engine behind other work

	_ [slotBytes - 4*64 - WaitBuckets*8 - Segments*4 - 8 - Segments/8 - 3*4 - NumClasses*4]byte
}

// presence is a worker's process and the request that waits at the gate.
type presence struct {
	state     atomic.Uint32
	pid       atomic.Uint32
	arrived   atomic.Uint32 // incremented when a request finds the gate closed
	pending   atomic.Uint32 // 1 + the class of the waiting request; 0: none waits
	idleSince atomic.Int64  // since when no work is pending or in flight; 0 while some is
	calls     atomic.Uint64
	idle      atomic.Int64 // ns without work pending or in flight, up to the last arrival of work
	predicted atomic.Int64 // ns that the waiting request is predicted to take

	// The waiting request's other properties; workers of earlier releases leave them 0.
	like atomic.Uint64 // twice its key, plus 1 if a similar request was measured before
	size atomic.Uint64 // bytes that it copies, or threads that it starts
}

// load is the work that a worker was admitted with, and how it came.
type load struct {
	inFlight [NumClasses]atomic.Int64 // predicted ns, at least 1 for each request
	requests [NumClasses]atomic.Int64
	admitted [NumClasses]atomic.Uint64 // requests ever admitted
	pauses   atomic.Uint64             // number of arrivals of work at an idle worker; idle grows then
	stood    atomic.Int64              // ns that requests waited for admission, up to the last admitted one
}

// consumption is the engine time and memory that a worker's work has used.
type consumption struct {
	used   [accel.NumClasses]atomic.Int64 // ns, only grows
	ended  [NumClasses]atomic.Uint64
	_      [16]byte
	memory [numPools]atomic.Uint64
	swap   [numSwapCounts]atomic.Uint64
	held   [NumClasses]atomic.Uint32 // number of admitted requests that wait for the gate to open again
}

// traceRing is the ring of a worker's trace records; the oldest are overwritten.
type traceRing struct {
	n    atomic.Uint64 // records ever begun
	_    [56]byte
	note [traceRingRecords]note
}

// note is one trace record. seq is its number plus 1 once all of it is written.
type note struct {
	seq        atomic.Uint64
	start, end atomic.Int64
	class      atomic.Uint32
	length     atomic.Uint32 // of the name
	name       [nameWords]atomic.Uint64
}

// layout is a whole page.
type layout struct {
	header
	slot      [Slots]slot
	traceRing [Slots]traceRing
}

const (
	bellMagic   = 0x0031_4c4c_4542_4550 // "PEBELL1\0"
	bellVersion = 1
	bellBytes   = 4096
)

// bellLayout is the content of a Bell's memfd.
type bellLayout struct {
	magic   uint64
	version uint32
	_       [52]byte

	rung atomic.Uint32 // futex word
}

// These fail to compile when a struct's size differs from the format.
var (
	_ [pageBytes]byte      = [unsafe.Sizeof(layout{})]byte{}
	_ [headerBytes]byte    = [unsafe.Sizeof(header{})]byte{}
	_ [slotBytes]byte      = [unsafe.Sizeof(slot{})]byte{}
	_ [traceRingBytes]byte = [unsafe.Sizeof(traceRing{})]byte{}
	_ [noteBytes]byte      = [unsafe.Sizeof(note{})]byte{}
)

// pageAt and bellAt overlay a mapping. That is safe because a mapping is page-aligned, at least as long as the struct
// (mapFile checks), made of plain words and atomics only, and never unmapped while its Page or Bell is in use.
func pageAt(mem []byte) *layout { return (*layout)(unsafe.Pointer(&mem[:pageBytes][0])) }

func bellAt(mem []byte) *bellLayout { return (*bellLayout)(unsafe.Pointer(&mem[:bellBytes][0])) }

// newFile returns a memfd sealed so that no process can shrink it while others map it.
func newFile(name string, bytes int64) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("make %s: %w", name, err)
	}
	f := os.NewFile(uintptr(fd), name)
	if err := f.Truncate(bytes); err != nil {
		f.Close()
		return nil, fmt.Errorf("size %s: %w", name, err)
	}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL); err != nil {
		f.Close()
		return nil, fmt.Errorf("seal %s: %w", name, err)
	}
	return f, nil
}

func mapFile(f *os.File, bytes int64) ([]byte, error) {
	if st, err := f.Stat(); err != nil || st.Size() < bytes {
		return nil, ErrPage
	}
	// A worker could shrink an unsealed file of its own later and crash the daemon with SIGBUS.
	if seals, err := unix.FcntlInt(f.Fd(), unix.F_GET_SEALS, 0); err != nil || seals&unix.F_SEAL_SHRINK == 0 {
		return nil, ErrPage
	}
	mem, err := unix.Mmap(int(f.Fd()), 0, int(bytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", f.Name(), err)
	}
	return mem, nil
}
