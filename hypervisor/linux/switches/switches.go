// Package switches lets the kernel write down what threads do: when each of those
// that are watched ran, waited for a processor and slept, to the nanosecond. Two BPF
// programs at the scheduler's tracepoints keep a table, which is read as memory:
// watching and looking enter the kernel no more.
//
// Package linux calls it. Loading needs CAP_BPF and CAP_PERFMON; the files of what was
// loaded may be handed to a process that has neither. The table is believed, since
// only the kernel and its holders can write there.
package switches

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// State is what a thread does.
type State uint32

const (
	Unknown  State = iota // it neither started nor stopped since it is watched
	Blocked               // sleeps
	Runnable              // waits for a processor
	Running
	Ended // if the kernel told it, which it doesn't always
)

// Entry is what is known of a thread. Ran, Waited and Times are as schedstat counts
// them, up to Since.
type Entry struct {
	State       State
	CPU         int   // where it runs or ran last, or waits since it woke
	Since       int64 // when its state began, on the clock CLOCK_MONOTONIC
	Ran, Waited int64
	Times       uint64 // that it began to run
}

// The table: an index of keys, in buckets by thread number, and for each place of
// the index a slot. Readers write the index only, the kernel the slots only. A key
// is a thread's number and, above it, a count of those that were ever watched, so a
// slot tells whom it speaks of.
const (
	tableName   = "threads"
	ways        = 4
	keyShift    = 3
	keyBytes    = 1 << keyShift
	bucketShift = 5 // of ways keys
	buckets     = 2048
	indexBytes  = buckets << bucketShift
	slotShift   = 6
	slotBytes   = 1 << slotShift
	tableBytes  = indexBytes + buckets*ways*slotBytes
)

// What lies in a slot.
const (
	slotSequence = 0 // 32 bits: odd while it changes
	slotState    = 4 // 32 bits
	slotKey      = 8
	slotSince    = 16
	slotRan      = 24
	slotWaited   = 32
	slotTimes    = 40
	slotCPU      = 48 // 32 bits
)

// Table is what the kernel writes down. Watch and Forget are called by one goroutine.
type Table struct {
	files   []*os.File // the table itself and what keeps it up to date
	mem     []byte
	watched uint32 // ever
}

// Open takes over what Files returned, in this or another process.
func Open(files []*os.File) (*Table, error) {
	if len(files) == 0 {
		return nil, errors.New("no files of a table of threads")
	}
	mem, err := unix.Mmap(int(files[0].Fd()), 0, tableBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map the table of threads: %w", err)
	}
	return &Table{files: files, mem: mem}, nil
}

// Files are what another process needs to Open the table: the table comes first. The
// kernel writes as long as any process has all of them. They stay the Table's.
func (t *Table) Files() []*os.File { return t.files }

// Close lets go of the table. Nothing is read from it afterwards.
func (t *Table) Close() {
	unix.Munmap(t.mem)
	for _, f := range t.files {
		f.Close()
	}
}

// Place is a watched thread's place in the table.
type Place struct {
	at  int
	key uint64
}

// Watch has a thread of this host watched, by its number. Whoever may hold that
// number later is meant as well until it is forgotten: make sure, afterwards, that it
// is still the right one's. False: there is no room.
func (t *Table) Watch(tid int) (Place, bool) {
	first := (tid & (buckets - 1)) * ways
	free := -1
	for at := first; at < first+ways; at++ {
		if key := atomic.LoadUint64(t.key(at)); key == 0 {
			free = at
		} else if uint32(key) == uint32(tid) {
			return Place{}, false
		}
	}
	if free < 0 {
		return Place{}, false
	}
	t.watched++
	p := Place{free, uint64(t.watched)<<32 | uint64(uint32(tid))}
	atomic.StoreUint64(t.key(free), p.key)
	return p, true
}

// Forget has a thread watched no more.
func (t *Table) Forget(p Place) { atomic.StoreUint64(t.key(p.at), 0) }

// maxTries is how often a slot is read that changes meanwhile. It changes for some
// nanoseconds, unless the processor that changes it is a virtual one that stands.
const maxTries = 100

// Read returns what a watched thread did and does; false: that can't be told now.
func (t *Table) Read(p Place) (e Entry, ok bool) {
	s := t.slot(p.at)
	for range maxTries {
		sequence := atomic.LoadUint32(&s.sequence)
		key := atomic.LoadUint64(&s.key)
		e = Entry{
			State:  State(atomic.LoadUint32(&s.state)),
			CPU:    int(atomic.LoadUint32(&s.cpu)),
			Since:  int64(atomic.LoadUint64(&s.since)),
			Ran:    int64(atomic.LoadUint64(&s.ran)),
			Waited: int64(atomic.LoadUint64(&s.waited)),
			Times:  atomic.LoadUint64(&s.times),
		}
		if sequence&1 == 0 && atomic.LoadUint32(&s.sequence) == sequence {
			if key != p.key {
				return Entry{}, true
			}
			return e, true
		}
	}
	return Entry{}, false
}
