// Package residence keeps the allocations of all processes of an accelerator
// within its memory, when together they have more than that: it decides what
// leaves the device, and brings it back before a kernel could miss it.
//
// An allocation has one home at any time: the device, the area of the device that is
// set aside for what leaves it, or host memory. Its address never changes. A kernel runs
// only while all allocations of its process are on the device, since it may reach any of
// them; copies and fills work wherever an allocation is, so they move nothing. An
// allocation that finds no room begins in host memory: there is nothing to move yet.
//
// Who needs room asks another process for some (Choose), and that one gives up
// allocations of its own between two requests, never during one. So no process ever
// sees the memory of another, one that dies takes along only what is its own, and one
// that does not answer is passed over.
//
// The package moves nothing itself. A Store does, and a Ledger is what the processes
// share; the software accelerator has both, and a device with virtual memory
// management can have them too: evicting is a copy, an unmap and a release there,
// retrieving a create, a map and a copy.
package residence

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"
)

// Store moves the bytes of allocations. Nobody uses an allocation while it is moved, and
// its address is the same before and after.
type Store interface {
	// Evict moves n bytes at addr to host memory, Retrieve back to the device.
	Evict(addr, n uint64) error
	Retrieve(addr, n uint64) error
}

// Ledger is what the processes of an accelerator share: who has how much of the
// device. Of a process that died nothing is left in it. Any goroutine may call it.
type Ledger interface {
	// Settle takes n bytes of the device, if there are so many; Force takes them anyway.
	Settle(n uint64) bool
	Force(n uint64)
	// Unsettle gives n bytes back.
	Unsettle(n uint64)
	// Stash makes n bytes that were settled some of the area, if there is room; Unstash gives those back.
	Stash(n uint64) bool
	Unstash(n uint64)

	// Free is how many bytes of the device nobody has; less than 0: what never leaves took so many that others still have.
	Free() int64
	// Others appends the other processes to the list; Mine is this one's domain with all of its processes.
	Others(to []Owner) []Owner
	// MayGive is how many bytes this process may give without taking from what its domain was promised.
	MayGive() uint64
	// Touch notes that this process has used its memory just now.
	Touch()

	// Ask asks another process, Asking says whether it has not answered yet, and Withdraw takes it back.
	Ask(Ask)
	Asking(owner int) bool
	Withdraw(owner int)
	// AwaitAnswer waits until some process has answered something, at most for d.
	AwaitAnswer(d time.Duration)
	// Asked is what this process is asked for, false if for nothing; Answer says that it was done.
	Asked() (Ask, bool)
	Answer()
	// AwaitAsk waits until this process is asked for something or Wake is called, at most for d.
	AwaitAsk(d time.Duration)
	Wake()

	// Carry waits for the engine that copies out of the device and runs f while it holds it.
	// It returns without that after Wake, if there is nothing to wait for any more.
	Carry(f func())
}

// ErrNoRoom is returned when nobody gave enough up, and ErrInUse, which is one of those, when all who could were busy
// for all that time.
var (
	ErrNoRoom = errors.New("no room on the device, and nothing that could leave it")
	ErrInUse  = fmt.Errorf("%w within %v: it is in use", ErrNoRoom, maxWait)
)

const (
	// patience is how long one process is waited for, and maxWait how long all of them,
	// while nothing comes of it.
	patience = 2 * time.Second
	maxWait  = 10 * time.Second
	// slice bounds each sleep.
	slice = 20 * time.Millisecond
)

// Moved is told, from any goroutine, how many bytes have just left the device or come
// back to it, one of which is 0, and how many are away from it now. It must not block.
type Moved func(out, in, away uint64)

// Set is the allocations of one process.
type Set struct {
	store  Store
	ledger Ledger
	moved  Moved

	mu        sync.Mutex
	changed   sync.Cond
	shared    int  // requests that are executed
	kernels   int  // those of them that are kernels
	exclusive bool // allocations are being moved
	giving    bool // somebody waits to move some out
	awaited   bool // a kernel waits to have some moved in

	objects  map[uint64]*object
	absent   []*object // in host memory, by address
	away     uint64    // bytes that are not on the device
	stashed  uint64    // those of them that are in the area
	requests uint64
	launched uint64 // the latest request that was a kernel

	stopping bool
	over     sync.WaitGroup
}

// New makes the set of a process and begins to answer what it is asked. moved may be nil.
func New(s Store, l Ledger, moved Moved) *Set {
	if moved == nil {
		moved = func(uint64, uint64, uint64) {}
	}
	r := &Set{store: s, ledger: l, moved: moved, objects: map[uint64]*object{}}
	r.changed.L = &r.mu
	r.over.Go(r.answer)
	r.over.Go(r.clearArea)
	return r
}

// Close ends the answering. No request may be executed.
func (r *Set) Close() {
	r.mu.Lock()
	r.stopping = true
	r.changed.Broadcast()
	r.mu.Unlock()
	r.ledger.Wake()
	r.over.Wait()
}

// TryAdd is Add of what may be moved, if nobody else has to make room for it at once.
func (r *Set) TryAdd(addr, n uint64) bool {
	o := &object{addr: addr, bytes: n, home: host}
	if r.ledger.Settle(n) {
		o.home = device
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if o.home != device && r.kernels > 0 {
		return false
	}
	r.note(o)
	return true
}

// Add notes a new allocation, which holds zeros. fixed says that it must not be
// moved. It begins on the device if there is room, or if it must: else in host memory. Beside a kernel others have to
// make room; stop says that it is in vain.
func (r *Set) Add(addr, n uint64, fixed bool, stop func() bool) error {
	o := &object{addr: addr, bytes: n, home: host, fixed: fixed}
	switch {
	case r.ledger.Settle(n):
		o.home = device
	case fixed:
		r.ledger.Force(n)
		o.home = device
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if o.home != device && r.kernels > 0 { // which could be told of it
		r.mu.Unlock()
		err := r.makeRoom(n, stop)
		r.mu.Lock()
		if err != nil {
			return err
		}
		o.home = device
	}
	r.note(o)
	return nil
}

// note enters a new object. r.mu is held.
func (r *Set) note(o *object) {
	r.requests++
	o.used = r.requests
	r.objects[o.addr] = o
	if r.enter(o); o.home != device {
		r.moved(0, 0, r.away)
	}
}

// Loosen makes an allocation that had to stay on the device one that need not.
func (r *Set) Loosen(addr uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if o := r.objects[addr]; o != nil {
		o.fixed = false
	}
}

// Remove forgets an allocation that is gone, with what it held.
func (r *Set) Remove(addr uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.exclusive {
		r.changed.Wait()
	}
	o := r.objects[addr]
	if o == nil {
		return
	}
	delete(r.objects, addr)
	r.leave(o)
	switch o.home {
	case device:
		r.ledger.Unsettle(o.bytes)
		return
	case area:
		r.ledger.Unstash(o.bytes)
	}
	r.moved(0, 0, r.away)
}

// settle changes the home of an object. r.mu is held.
func (r *Set) settle(o *object, h home) {
	r.leave(o)
	o.home = h
	r.enter(o)
}

// enter and leave count an object where it is, and where it was.
func (r *Set) enter(o *object) {
	if o.home != device {
		r.away += o.bytes
	}
	switch o.home {
	case area:
		r.stashed += o.bytes
	case host:
		i, _ := r.find(o.addr)
		r.absent = slices.Insert(r.absent, i, o)
	}
}

func (r *Set) leave(o *object) {
	if o.home != device {
		r.away -= o.bytes
	}
	switch o.home {
	case area:
		r.stashed -= o.bytes
	case host:
		i, _ := r.find(o.addr)
		r.absent = slices.Delete(r.absent, i, i+1)
	}
}

func (r *Set) find(addr uint64) (int, bool) {
	return slices.BinarySearchFunc(r.absent, addr, func(o *object, addr uint64) int { return cmp.Compare(o.addr, addr) })
}

// Absent says whether addr lies in an allocation that is in host memory. It is
// for requests that are executed, and for who holds Begin.
func (r *Set) Absent(addr uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	i, exactly := r.find(addr)
	if !exactly {
		i--
	}
	if i < 0 || addr-r.absent[i].addr >= r.absent[i].bytes {
		return false
	}
	r.requests++
	r.absent[i].used = r.requests
	return true
}

// Away is how many bytes are not on the device.
func (r *Set) Away() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.away
}

// Begin waits until nothing is moved, and keeps it so until End: for requests other
// than kernels.
func (r *Set) Begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.held() {
		r.changed.Wait()
	}
	r.began(false)
}

// held says whether no request may begin: something is moved, or is to be. While a
// kernel runs, what is to be moved waits for it, and it may wait for other requests.
func (r *Set) held() bool { return r.exclusive || (r.giving || r.awaited) && r.kernels == 0 }

// TryBegin is Begin if it need not wait. For a kernel everything must be on the device, too.
func (r *Set) TryBegin(kernel bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held() || kernel && r.away > 0 {
		return false
	}
	r.began(kernel)
	return true
}

func (r *Set) began(kernel bool) {
	r.shared++
	if kernel {
		r.kernels++
		r.requests++
		r.launched = r.requests
	}
}

// BeginKernel is Begin for a kernel: it brings all that is away back to the device,
// which others have to make room for. The caller holds the engine for kernels. stop
// says that it is in vain.
func (r *Set) BeginKernel(stop func() bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.exclusive || r.giving || r.away > 0 && r.shared > 0 {
		if stop != nil && stop() {
			r.awaited = false
			return ErrNoRoom
		}
		r.awaited = r.away > 0 && !r.giving
		r.changed.Wait()
	}
	r.awaited = false
	if r.away > 0 {
		r.exclusive = true
		err := r.retrieve(stop)
		r.exclusive = false
		r.changed.Broadcast()
		if err != nil {
			return err
		}
	}
	r.began(true)
	return nil
}

// Wanted says whether others wait for what is executed to end, so that something can be given up.
func (r *Set) Wanted() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.giving
}

// Yield waits until they wait no more. It is for who would begin one kernel after the other, and who knows that those which
// are executed will end: without that, what they wait for might never come.
func (r *Set) Yield(stop func() bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.giving && !stop() {
		r.changed.Wait()
	}
}

// Look has those that wait look whether they are to stop.
func (r *Set) Look() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changed.Broadcast()
}

// Claim takes n bytes of the device for what is no allocation and never leaves it: others have to make room. The caller holds
// the engine for kernels. The ledger's Unsettle gives them back. Claiming 0 has them make up for what was taken without asking.
func (r *Set) Claim(n uint64, stop func() bool) error { return r.makeRoom(n, stop) }

// End is after every Begin.
func (r *Set) End(kernel bool) {
	r.ledger.Touch()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.shared--
	if kernel {
		r.kernels--
	}
	r.changed.Broadcast()
}

// retrieve brings back everything. r.mu is held, but not while it waits or moves.
func (r *Set) retrieve(stop func() bool) error {
	for r.away > 0 {
		need := r.away
		r.mu.Unlock()
		err := r.makeRoom(need, stop)
		r.mu.Lock()
		if err != nil {
			return err
		}
		for _, o := range r.missing() {
			if o.bytes > need {
				break // it came meanwhile
			}
			if err := r.bringBack(o); err != nil {
				r.ledger.Unsettle(need)
				return err
			}
			need -= o.bytes
		}
		if need > 0 { // it went meanwhile
			r.ledger.Unsettle(need)
		}
	}
	return nil
}

// missing lists what is not on the device, by address. r.mu is held.
func (r *Set) missing() []*object {
	var all []*object
	for _, o := range r.objects {
		if o.home != device {
			all = append(all, o)
		}
	}
	slices.SortFunc(all, func(a, b *object) int { return cmp.Compare(a.addr, b.addr) })
	return all
}

// bringBack moves an object to the device, where there is room for it. r.mu is
// held, but not while it is moved.
func (r *Set) bringBack(o *object) error {
	if o.home == area {
		r.ledger.Unstash(o.bytes)
	} else {
		r.mu.Unlock()
		err := r.store.Retrieve(o.addr, o.bytes)
		r.mu.Lock()
		if err != nil {
			return err
		}
	}
	r.settle(o, device)
	r.moved(0, o.bytes, r.away)
	return nil
}

// makeRoom settles n bytes, which others have to give up.
func (r *Set) makeRoom(n uint64, stop func() bool) error {
	passed := map[Ask]bool{}
	has := func(a Ask) bool { return passed[Ask{Owner: a.Owner, Pressing: a.Pressing}] }
	best := int64(math.MinInt64)
	var others []Owner
	for deadline := time.Now().Add(maxWait); !r.ledger.Settle(n); {
		if stop != nil && stop() {
			return ErrNoRoom
		}
		if time.Now().After(deadline) {
			return ErrInUse
		}
		free := r.ledger.Free()
		if free >= int64(n) {
			continue
		}
		if free > best {
			best, deadline = free, time.Now().Add(maxWait)
		}
		others = r.ledger.Others(others[:0])
		a, ok := Choose(others, uint64(int64(n)-free), has)
		if !ok {
			if len(passed) == 0 {
				return ErrNoRoom // nobody has anything
			}
			clear(passed)
			r.ledger.AwaitAnswer(slice)
			continue
		}
		if !r.request(a, stop) || r.ledger.Free() <= free {
			passed[Ask{Owner: a.Owner, Pressing: a.Pressing}] = true
		}
	}
	return nil
}

// request asks somebody and waits for the answer. It returns false if there came none.
func (r *Set) request(a Ask, stop func() bool) bool {
	r.ledger.Ask(a)
	for deadline := time.Now().Add(patience); r.ledger.Asking(a.Owner); {
		if stop != nil && stop() || time.Now().After(deadline) {
			r.ledger.Withdraw(a.Owner)
			return false
		}
		r.ledger.AwaitAnswer(slice)
	}
	return true
}

// answer gives up what others ask for, until Close.
func (r *Set) answer() {
	for !r.closing() {
		if a, ok := r.ledger.Asked(); ok {
			r.give(a)
			r.ledger.Answer()
		} else {
			r.ledger.AwaitAsk(time.Second)
		}
	}
}

func (r *Set) closing() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stopping
}

// give waits for the requests that are executed and moves out what is asked for.
func (r *Set) give(a Ask) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.giving = true
	defer func() { r.giving = false; r.changed.Broadcast() }()
	end := time.Now().Add(patience + slice) // from then on nobody waits any more, unless he has died
	defer time.AfterFunc(patience+2*slice, r.Look).Stop()
	for r.exclusive || r.shared > 0 {
		if _, still := r.ledger.Asked(); !still || r.stopping || time.Now().After(end) {
			return
		}
		r.changed.Wait()
	}
	limit := ^uint64(0)
	if !a.Pressing {
		limit = r.ledger.MayGive()
	}
	r.exclusive = true
	for _, o := range choose(r.listed(), a.Bytes, limit) {
		r.moveOut(o)
	}
	r.exclusive = false
}

// listed is all objects; a launch has used them all. r.mu is held.
func (r *Set) listed() []*object {
	all := make([]*object, 0, len(r.objects))
	for _, o := range r.objects {
		o.used = max(o.used, r.launched)
		all = append(all, o)
	}
	return all
}

// moveOut takes an object off the device: to the area if there is room, which
// takes no time, else to host memory. r.mu is held, but not while it is moved.
func (r *Set) moveOut(o *object) {
	if r.ledger.Stash(o.bytes) {
		r.settle(o, area)
	} else {
		r.mu.Unlock()
		err := r.store.Evict(o.addr, o.bytes)
		r.mu.Lock()
		if err != nil {
			return // it stays
		}
		r.settle(o, host)
		r.ledger.Unsettle(o.bytes)
	}
	r.moved(o.bytes, 0, r.away)
}

// clearArea moves on to host memory what is in the area, until Close: others may
// want it, and compute meanwhile.
func (r *Set) clearArea() {
	for {
		r.mu.Lock()
		for r.stashed == 0 && !r.stopping {
			r.changed.Wait()
		}
		stopping := r.stopping
		r.mu.Unlock()
		if stopping {
			return
		}
		done := false
		r.ledger.Carry(func() { done = r.carry() })
		if !done {
			time.Sleep(time.Millisecond)
		}
	}
}

// carry moves an object from the area to host memory. It returns false if none can
// be moved just now: whoever holds an engine must not wait for one who may want it.
func (r *Set) carry() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.exclusive || r.shared > 0 || r.stashed == 0 {
		return false
	}
	all := r.missing()
	o := all[slices.IndexFunc(all, func(o *object) bool { return o.home == area })]
	r.exclusive = true
	r.mu.Unlock()
	err := r.store.Evict(o.addr, o.bytes)
	r.mu.Lock()
	r.exclusive = false
	r.changed.Broadcast()
	if err != nil {
		return false
	}
	r.settle(o, host)
	r.ledger.Unstash(o.bytes)
	return true
}
