// Package switches makes the kernel record the states of threads: when each of the watched ones ran, waited for a
// processor and slept, to the nanosecond. Two BPF programs at the scheduler's tracepoints maintain a table, which is
// read as memory: watching and reading make no system calls.
//
// Callers: package linux. Loading needs CAP_BPF and CAP_PERFMON; the files of the loaded objects may be passed to a
// process that has neither.
//
// Trust boundary: the table is trusted, since only the kernel and its holders can write there.
package switches

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// State is a thread's state.
type State uint32

const (
	Unknown  State = iota // no start or stop since it is watched
	Blocked               // sleeps
	Runnable              // waits for a processor
	Running
	Ended // if the kernel recorded it, which it doesn't always
)

// Entry is the state of a thread. Ran, Waited and Times are as schedstat counts them, up to Since.
type Entry struct {
	State       State
	CPU         int   // where it runs or ran last, or waits since it woke
	Since       int64 // when its state began, on the clock CLOCK_MONOTONIC
	Ran, Waited int64
	Times       uint64 // number of runs
}

// The table: an index of keys, in buckets by thread number, and for each place of the index a slot. Readers write the
// index only, the kernel the slots only. A key is a thread's number and, above it, a count of the threads ever
// watched, so a slot identifies its thread.
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

// Offsets in a slot.
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

// Table is the table that the kernel maintains. Watch and Forget are called by one goroutine.
type Table struct {
	files   []*os.File // the table itself and the attached programs
	mem     []byte
	watched uint32 // ever
}

// Open opens the table of the result of Files, in this or another process.
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

// Files returns the files that another process needs to Open the table: the table comes first. The kernel updates the
// table as long as any process has all of them. The Table owns them.
func (t *Table) Files() []*os.File { return t.files }

// Close releases the table. Nothing is read from it afterwards.
func (t *Table) Close() {
	unix.Munmap(t.mem)
	for _, f := range t.files {
		f.Close()
	}
}

// Slot is a watched thread's place in the table.
type Slot struct {
	at  int
	key uint64
}

// Watch watches a thread of this host, by its number. A later thread of the same number is watched as well, until
// Forget: the caller verifies afterwards that the number is still the intended thread's. False: there is no room.
func (t *Table) Watch(tid int) (Slot, bool) {
	first := (tid & (buckets - 1)) * ways
	free := -1
	for at := first; at < first+ways; at++ {
		if key := atomic.LoadUint64(t.key(at)); key == 0 {
			free = at
		} else if uint32(key) == uint32(tid) {
			return Slot{}, false
		}
	}
	if free < 0 {
		return Slot{}, false
	}
	t.watched++
	p := Slot{free, uint64(t.watched)<<32 | uint64(uint32(tid))}
	atomic.StoreUint64(t.key(free), p.key)
	return p, true
}

// Forget stops watching a thread.
func (t *Table) Forget(p Slot) { atomic.StoreUint64(t.key(p.at), 0) }

// maxTries bounds the reads of a slot that changes meanwhile. A change takes some nanoseconds, unless the processor
// is a virtual one that is preempted.
const maxTries = 100

// Read returns the state of a watched thread; false: it is unknown now.
func (t *Table) Read(p Slot) (e Entry, ok bool) {
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
