package engine

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// ErrFull is returned when live processes have all places of a page.
var ErrFull = errors.New("engine page: all places are taken")

// An owner word is epoch<<32 | pid; pid 0 means free. The epoch changes when a place is freed; words with an older
// epoch are ignored, so that freeing a dead process's place is one compare-and-swap, and doing it twice does no harm.
func ownerWord(epoch uint16, pid int) uint64 { return uint64(epoch)<<32 | uint64(uint32(pid)) }
func ownerPid(o uint64) int                  { return int(uint32(o)) }
func ownerEpoch(o uint64) uint16             { return uint16(o >> 32) }

// A process has its place in a page as long as it holds a lock on the byte of a file at the place's number. The lock
// belongs to an open file description of its own, which the kernel closes when the process ends in any way, even if its
// parent never notices; the check needs neither /proc nor a pid, which a confined worker may lack.

// registry contains the owners of the places of a page.
type registry struct {
	fd      int   // of the page's file; -1: it is only mapped
	locks   int   // file descriptor of the file that has the locks on its bytes
	lockAt  int64 // where they begin
	places  int
	owner   func(i int) *atomic.Uint64
	release func(i int, owner uint64) // frees place i and its resources if it still belongs to owner
	high    *atomic.Uint32            // places ever used: bounds the loops over them
}

// place is a process's place in a page.
type place struct {
	index int
	epoch uint16
	me    uint64 // owner word: of this epoch and process
	lock  int    // the open file description with the lock that shows that the process lives
}

// take takes a place for this process. start initializes the place for a new owner.
func (r *registry) take(start func(at place)) (place, error) {
	fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", r.locks), unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return place{}, fmt.Errorf("open engine page again: %w", err)
	}
	for i := range r.places {
		if !r.lock(fd, i) {
			continue
		}
		owner := r.owner(i)
		if o := owner.Load(); ownerPid(o) != 0 {
			r.release(i, o) // the previous owner is dead
		}
		at := place{index: i, epoch: ownerEpoch(owner.Load()), lock: fd}
		at.me = ownerWord(at.epoch, os.Getpid())
		start(at)
		raise(r.high, uint32(i+1))
		owner.Store(at.me)
		return at, nil
	}
	unix.Close(fd)
	return place{}, ErrFull
}

// leave releases a place of this process.
func (r *registry) leave(at place) {
	r.release(at.index, at.me)
	unix.Close(at.lock)
}

// used returns the number of places that were ever in use. A process that maps the page can lower it.
func (r *registry) used() int { return int(min(r.high.Load(), uint32(r.places))) }

// pid returns the process that has place i since an epoch, or 0.
func (r *registry) pid(i int, epoch uint16) int {
	if i < 0 || i >= r.places {
		return 0
	}
	o := r.owner(i).Load()
	if ownerEpoch(o) != epoch {
		return 0
	}
	return ownerPid(o)
}

// lock takes place i's lock for a description of the locks' file, if no living process has it.
func (r *registry) lock(fd, i int) bool {
	return unix.FcntlFlock(uintptr(fd), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK, Start: r.lockAt + int64(i), Len: 1}) == nil
}

// alive reports whether slot i belongs to a living process.
func (r *registry) alive(i int) bool {
	l := unix.Flock_t{Type: unix.F_WRLCK, Start: r.lockAt + int64(i), Len: 1}
	if err := unix.FcntlFlock(uintptr(r.locks), unix.F_OFD_GETLK, &l); err != nil {
		return true // undetermined: waiting is safer than two holders
	}
	return l.Type != unix.F_UNLCK
}

// Reap frees all resources of a dead process in the page. The daemon calls it when it has detected the end of the
// process. Reap checks the lock of a place, too: any process that maps the page could have written the number into
// another one's place. It checks all places, since any such process could also have lowered high.
func (r *registry) Reap(pid int) {
	for i := range r.places {
		if o := r.owner(i).Load(); ownerPid(o) == pid && pid != 0 && !r.alive(i) {
			r.release(i, o)
		}
	}
}

// Sweep reaps every process that is found dead.
func (r *registry) Sweep() {
	for i := range r.places {
		if o := r.owner(i).Load(); ownerPid(o) != 0 && !r.alive(i) {
			r.release(i, o)
		}
	}
}

// mendHigh raises high to cover all places that have owners.
func (r *registry) mendHigh() {
	for i := r.used(); i < r.places; i++ {
		if ownerPid(r.owner(i).Load()) != 0 {
			raise(r.high, uint32(i+1))
		}
	}
}

func raise(v *atomic.Uint32, to uint32) {
	for n := v.Load(); n < to && !v.CompareAndSwap(n, to); n = v.Load() {
	}
}
