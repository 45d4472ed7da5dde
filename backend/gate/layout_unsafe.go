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
	pageMagic   = 0x0031_5445_4147_4550 // "PEGATE1\0"
	pageVersion = 7
	headerBytes = 28672
	slotBytes   = 3072
	reelBytes   = 64 + reelNotes*noteBytes
	noteBytes   = 128
	pageBytes   = headerBytes + Slots*(slotBytes+reelBytes)

	// reelNotes is how many notes a worker keeps of what it executed last.
	reelNotes = 128

	// nameWords is how many words of a kernel's name a note has room for.
	nameWords = 12

	// WaitBuckets is the number of buckets of a wait histogram: bucket 0 counts
	// requests that did not wait, bucket n those that waited less than 2^n ns.
	WaitBuckets = 64
)

// The kinds of a lease.
const (
	termOpen     = 1 << 0
	termBudget   = 1 << 8
	termRequests = 1 << 9
)

// lease is what one was granted: terms is 0 while there is none. The daemon writes
// it, workers take from budget and requests, and add to used.
type lease struct {
	terms    atomic.Uint32
	_        [4]byte
	deadline atomic.Int64
	budget   atomic.Int64
	requests atomic.Int64
	lent     atomic.Int64 // the budget as granted; 0: there is none
	used     atomic.Int64 // ns that engines were held since then
	_        [16]byte
}

// A page has a lease for all classes together, or one for each.
const numLeases = 1 + int(NumClasses)

type header struct {
	magic   uint64
	version uint32
	slots   uint32
	_       [48]byte

	generation    atomic.Uint32 // futex word
	top           atomic.Uint32 // slots from here on were never taken
	aliveUntil    atomic.Int64  // 0: no daemon has promised anything yet
	inFlightLimit atomic.Int64  // predicted ns per class; 0: none
	noting        atomic.Uint32 // not 0: workers note each piece of work when it ends
	_             [36]byte

	overrun [NumClasses]atomic.Int64 // ns that engines were held by work that ended while the gate was closed, or its budget used up
	_       [48]byte

	lock        atomic.Uint32 // 0, or 1 + the slot that changes the fields below; futex word
	lockWaiters atomic.Uint32
	memory      [numPools]pool
	daemon      atomic.Uint32 // pid
	_           [36]byte

	released     atomic.Uint32 // futex word: bumped when work ends while somebody waits for the limit
	limitWaiters atomic.Uint32
	watch        atomic.Uint32 // 1: ring the bell when a worker next runs out of work
	_            [52]byte

	leases [numLeases]lease

	segments [Segments]segment

	segmentUnit atomic.Uint64 // that their bytes are counted in; 0: as they are
	logged      allowance     // for the host's log, of all workers together
	logLost     atomic.Uint64 // bytes that it had no room for, not reported yet
	segmentsTop atomic.Uint32 // segments from here on were never made
	_           [36]byte
	holdings    [Segments]holding

	preparing        [maxPreparers]atomic.Uint32 // 1 + the slot that prepares work
	preparers        atomic.Uint32               // how many of them there are; 0: an older daemon doesn't say
	preparersWaiting atomic.Uint32
	prepared         atomic.Uint32 // futex word: one more whenever a place is free again
	_                [52]byte

	_ [headerBytes - 8*64 - numLeases*64 - Segments*(32+16)]byte
}

// segment is device memory that the domain's workers share. It changes under the lock.
type segment struct {
	state  atomic.Uint32 // 0: there is none
	key    atomic.Uint32 // of a loose one the upper half of its secret
	serial atomic.Uint32
	lower  atomic.Uint32 // half of its secret
	offset atomic.Uint64
	bytes  atomic.Uint64
}

// holding is how workers pass each other a segment whose bytes are in nobody's file.
type holding struct {
	tag     atomic.Uint64 // by which one asks another for it
	claim   atomic.Uint32 // 1 + the slot of who begins or ends to have it; 0: nobody does; futex word
	claimer atomic.Uint32 // and its pid
}

func (s *segment) secret() uint64 { return uint64(s.key.Load())<<32 | uint64(s.lower.Load()) }

func (s *segment) setSecret(n uint64) {
	s.key.Store(uint32(n >> 32))
	s.lower.Store(uint32(n))
}

// pool is one kind of memory: how much of it the domain's workers may hold.
type pool struct{ quota atomic.Uint64 }

type slot struct {
	state     atomic.Uint32
	pid       atomic.Uint32
	arrived   atomic.Uint32 // bumped when a request finds the gate closed
	pending   atomic.Uint32 // 1 + the class of a request that waits; 0: none does
	idleSince atomic.Int64  // since when nothing is pending or in flight; 0 while something is
	calls     atomic.Uint64
	idle      atomic.Int64 // ns that nothing was pending or in flight, up to the last time that something was
	predicted atomic.Int64 // ns that the request will take that waits

	// What else is known of that request; workers of earlier releases leave it 0.
	like atomic.Uint64 // twice its key, and 1 if the like of it was measured before
	size atomic.Uint64 // bytes that it copies, or threads that it starts

	inFlight [NumClasses]atomic.Int64 // predicted ns, at least 1 for each request
	requests [NumClasses]atomic.Int64
	admitted [NumClasses]atomic.Uint64 // requests that ever got leave
	pauses   atomic.Uint64             // how often something came after nothing was; idle grows then
	stood    atomic.Int64              // ns that requests waited for leave, up to the last that got it

	used   [accel.NumClasses]atomic.Int64 // ns, only grows
	ended  [NumClasses]atomic.Uint64
	_      [16]byte
	memory [numPools]atomic.Uint64
	swap   [numSwapCounts]atomic.Uint64
	held   [NumClasses]atomic.Uint32 // whether admitted work waits for the gate to open again

	waits [WaitBuckets]atomic.Uint64

	attached [Segments]atomic.Uint32 // how often the worker has each segment attached

	standing atomic.Int64 // since when a request waits for leave; 0: none does

	holds [Segments / 64]atomic.Uint64 // a bit for each segment whose memory it has, which others get of it

	guest atomic.Uint32 // pid of the process that the worker serves; 0: none of this host

	offers atomic.Uint32 // where others ask for those

	dependent atomic.Uint32 // not 0: what it has in flight may wait for what its guest has yet to do

	queued [NumClasses]atomic.Uint32 // pieces of admitted work that wait for their engine behind other work

	_ [slotBytes - 4*64 - WaitBuckets*8 - Segments*4 - 8 - Segments/8 - 3*4 - NumClasses*4]byte
}

// reel is where a worker notes what it executes, the oldest notes first to go.
type reel struct {
	n    atomic.Uint64 // notes ever begun
	_    [56]byte
	note [reelNotes]note
}

// note is one piece of work. seq is 1 more than its number when all of it is written.
type note struct {
	seq        atomic.Uint64
	start, end atomic.Int64
	class      atomic.Uint32
	length     atomic.Uint32 // of the name
	name       [nameWords]atomic.Uint64
}

type layout struct {
	header
	slot [Slots]slot
	reel [Slots]reel
}

const (
	bellMagic   = 0x0031_4c4c_4542_4550 // "PEBELL1\0"
	bellVersion = 1
	bellBytes   = 4096
)

type bellLayout struct {
	magic   uint64
	version uint32
	_       [52]byte

	rung atomic.Uint32 // futex word
}

// These fail to compile when a struct is not the size that the format says.
var (
	_ [pageBytes]byte   = [unsafe.Sizeof(layout{})]byte{}
	_ [headerBytes]byte = [unsafe.Sizeof(header{})]byte{}
	_ [slotBytes]byte   = [unsafe.Sizeof(slot{})]byte{}
	_ [reelBytes]byte   = [unsafe.Sizeof(reel{})]byte{}
	_ [noteBytes]byte   = [unsafe.Sizeof(note{})]byte{}
)

// pageAt and bellAt overlay a mapping. That is right because a mapping is
// page-aligned, at least as long as the struct (mapFile checks), made of plain
// words and atomics only, and never unmapped while its Page or Bell is used.
func pageAt(mem []byte) *layout { return (*layout)(unsafe.Pointer(&mem[:pageBytes][0])) }

func bellAt(mem []byte) *bellLayout { return (*bellLayout)(unsafe.Pointer(&mem[:bellBytes][0])) }

// newFile makes a memfd that nobody can shrink under the other side's feet.
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
	// A file of a worker's own making could shrink later and take the daemon along.
	if seals, err := unix.FcntlInt(f.Fd(), unix.F_GET_SEALS, 0); err != nil || seals&unix.F_SEAL_SHRINK == 0 {
		return nil, ErrPage
	}
	mem, err := unix.Mmap(int(f.Fd()), 0, int(bytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", f.Name(), err)
	}
	return mem, nil
}
