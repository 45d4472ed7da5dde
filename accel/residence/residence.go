// Package residence oversubscribes the memory of an accelerator: when the allocations of all processes exceed it, the
// package chooses allocations to evict, and retrieves them before a kernel of their process runs.
//
// An allocation has one home at any time: the device, the area (the part of the device that is reserved for evicted
// allocations), or host memory. Its address never changes. A kernel runs only while all allocations of its process are
// on the device, since it may access any of them; copies and fills work on any home and move no allocation. A new
// allocation for which the device has no room begins in host memory, since it has no content to move yet.
//
// A process that needs room requests it from another process, the victim (Choose). The victim evicts allocations of its
// own between two requests, never during one. So no process accesses the memory of another, a process that dies takes
// only its own allocations along, and a victim that does not answer is skipped.
//
// One process at a time requests room, and takes the freed bytes: the one that has waited the longest. The others are
// victims while they wait, so that no two processes wait for each other.
//
// A Store moves the bytes, and a Ledger holds the state that the processes share. The software accelerator implements
// both, and a device with virtual memory management can: there an eviction is a copy, an unmap and a release, and a
// retrieval is a create, a map and a copy.
//
// Callers: accel/soft and accel/nvidia, which provide the Store; accel/soft/engine implements the Ledger.
//
// Trust boundary: the Ledger's numbers come from other workers, of which any may be compromised. Wrong numbers can make
// an allocation fail, evict it or delay others for minutes, and harm no data.
package residence

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Store moves the bytes of allocations. No request uses an allocation while it is moved, and its address is the same
// before and after.
type Store interface {
	// Evict moves n bytes at addr to host memory; Retrieve moves them back to the device.
	Evict(addr, n uint64) error
	Retrieve(addr, n uint64) error
}

// Ledger is the state that the processes of an accelerator share: the number of bytes of the device that each of them
// holds. It drops the entries of a process that died. Any goroutine may call it.
type Ledger interface {
	// Occupy counts n bytes of the device to this process and returns true, or returns false if fewer are free. ForceOccupy
	// counts them in either case.
	Occupy(n uint64) bool
	ForceOccupy(n uint64)
	// Vacate gives n bytes back.
	Vacate(n uint64)
	// OccupyHost counts n of these bytes to the area instead and returns true, or returns false if the area has no room.
	// VacateHost gives n bytes of the area back.
	OccupyHost(n uint64) bool
	VacateHost(n uint64)

	// Free returns the number of unallocated bytes of the device. It is negative while forced bytes, which are never
	// evicted, exceed the space that other processes have freed so far.
	Free() int64
	// Others appends the other processes to a list and returns it.
	Others(to []Owner) []Owner
	// MayGive returns the number of bytes that this process may evict without going below its domain's guarantee.
	MayGive() uint64
	// Touch records that this process has just used its memory.
	Touch()

	// Queue records that this process waits for room, until Unqueue. Ahead returns the other process that has waited
	// the longest, and since when; or false if none waits, or this process has waited longer.
	Queue()
	Unqueue()
	Ahead() (owner int, since int64, ok bool)

	// Ask sends a request to another process, Asking reports whether the owner has not answered it yet, and Withdraw
	// cancels it.
	Ask(Ask)
	Asking(owner int) bool
	Withdraw(owner int)
	// AwaitAnswer blocks until any process has answered a request, at most for d.
	AwaitAnswer(d time.Duration)
	// Asked returns the pending request of another process to this one, or false if there is none. Answer marks it as
	// done.
	Asked() (Ask, bool)
	Answer()
	// AwaitAsk blocks until a request for this process arrives or Wake is called, at most for d.
	AwaitAsk(d time.Duration)
	Wake()

	// Carry acquires the engine that copies out of the device, and runs f while it holds the engine. After Wake it
	// returns without running f if nothing is left to wait for.
	Carry(f func())
}

// ErrNoRoom reports that the other processes evicted too little. ErrInUse wraps it, and reports that every possible
// victim was using its memory for the whole of maxWait.
var (
	ErrNoRoom = errors.New("no room on the device, and nothing that could leave it")
	ErrInUse  = fmt.Errorf("%w within %v: it is in use", ErrNoRoom, maxWait)
)

const (
	// patience bounds the first wait for one victim, and maxWait the wait for all of them without progress. Each wait
	// after a round without an answer is twice as long: a victim launches nothing while it is waited for, so that even
	// one with many queued kernels ends them.
	patience = 2 * time.Second
	maxWait  = 10 * time.Second
	// turn bounds the wait for a process that has waited for room longer, and gets none: it has stopped. mostTurns bounds
	// the wait for all such processes, in turns.
	turn      = maxWait + patience
	mostTurns = 5
	// slice bounds each sleep.
	slice = 20 * time.Millisecond
)

// Moved receives the bytes that have just been evicted from the device (out) or retrieved (in), at least one of which is
// 0, and the bytes that are now away from it. Any goroutine may call it. It must not block.
type Moved func(out, in, away uint64)

// Set holds the allocations of one process, and the requests that use them. Requests share the set; moving allocations
// needs it exclusively.
type Set struct {
	store  Store
	ledger Ledger
	moved  Moved

	mu       sync.Mutex
	changed  sync.Cond
	shared   int  // executing requests
	kernels  int  // the kernels among them
	moving   bool // allocations are being moved
	entering bool // a kernel waits for room, or for its allocations to be retrieved; no request begins
	giving   bool // an eviction for another process waits to begin, or is under way
	awaited  bool // a kernel waits for entering to be possible
	waits    int  // calls that wait for room
	first    first

	objects  map[uint64]*object
	absent   []*object // in host memory, by address
	away     uint64    // bytes that are not on the device
	stashed  uint64    // the part of away that is in the area
	requests uint64
	launched uint64 // the latest request that was a kernel

	stopping bool
	over     sync.WaitGroup
}

// New returns the set of a process, and starts to answer the requests of other processes. moved may be nil.
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

// Close stops answering other processes. No request may be executing.
func (r *Set) Close() {
	r.mu.Lock()
	r.stopping = true
	r.changed.Broadcast()
	r.mu.Unlock()
	r.ledger.Wake()
	r.over.Wait()
}

// TryAdd adds a movable allocation as Add does, and returns true. It returns false instead of waiting for other
// processes to make room.
func (r *Set) TryAdd(addr, n uint64) bool {
	o := &object{addr: addr, bytes: n, home: host}
	if r.occupyFree(n) {
		o.home = device
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if o.home != device && r.kernels > 0 { // the process ahead may wait for the kernel: the queue does not matter
		if !r.ledger.Occupy(n) {
			return false
		}
		o.home = device
	}
	r.note(o)
	return true
}

// Add records a new allocation, which holds zeros. A fixed allocation is never moved. The allocation begins on the
// device if it is fixed or there is room that no other process waits for, else in host memory. While a kernel executes,
// Add blocks until other processes have made room on the device; it returns ErrNoRoom when stop returns true.
func (r *Set) Add(addr, n uint64, fixed bool, stop func() bool) error {
	o := &object{addr: addr, bytes: n, home: host, fixed: fixed}
	switch {
	case r.occupyFree(n):
		o.home = device
	case fixed:
		r.ledger.ForceOccupy(n)
		o.home = device
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for o.home != device && r.kernels > 0 { // the kernel could receive the address
		claimed, err := r.claimBeside(n, stop)
		if err != nil {
			return err
		}
		if claimed {
			o.home = device
		}
	}
	r.note(o)
	return nil
}

// claimBeside occupies n bytes and returns true, or returns false once no kernel executes. A process that has waited for
// room longer may wait for the kernel, and so has no precedence for free bytes. r.mu is held, except while claimBeside
// waits.
func (r *Set) claimBeside(n uint64, stop func() bool) (claimed bool, err error) {
	if r.ledger.Occupy(n) {
		return true, nil
	}
	ended := false
	err = r.claim(n, func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		ended = r.kernels == 0
		return ended || stop != nil && stop()
	})
	if err != nil && ended {
		return false, nil
	}
	return err == nil, err
}

// occupyFree occupies n bytes, unless another process waits for them.
func (r *Set) occupyFree(n uint64) bool {
	return !r.first.ahead(r.ledger) && r.ledger.Occupy(n)
}

// note records a new object. r.mu is held.
func (r *Set) note(o *object) {
	r.requests++
	o.used = r.requests
	r.objects[o.addr] = o
	if r.enter(o); o.home != device {
		r.moved(0, 0, r.away)
	}
}

// Loosen makes a fixed allocation movable.
func (r *Set) Loosen(addr uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if o := r.objects[addr]; o != nil {
		o.fixed = false
	}
}

// Remove drops a freed allocation and its content.
func (r *Set) Remove(addr uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.moving {
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
		r.ledger.Vacate(o.bytes)
		return
	case area:
		r.ledger.VacateHost(o.bytes)
	}
	r.moved(0, 0, r.away)
}

// settle changes the home of an object. r.mu is held.
func (r *Set) settle(o *object, h home) {
	r.leave(o)
	o.home = h
	r.enter(o)
}

// enter adds an object to the counts of its home, and leave removes it from them.
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

// Absent reports whether addr lies in an allocation that is in host memory, and records a use of that allocation. The
// caller is an executing request, or is between Begin and End.
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

// Away returns the number of bytes that are not on the device.
func (r *Set) Away() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.away
}

// Begin blocks until no allocation is being moved, and prevents moves until End. Requests other than kernels use it.
func (r *Set) Begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.held() {
		r.changed.Wait()
	}
	r.began(false)
}

// held reports whether requests must wait because allocations are being moved or are about to be. While a kernel
// executes, a pending move waits for the kernel; since the kernel may depend on other requests, those may begin.
func (r *Set) held() bool {
	return r.moving || r.entering || (r.giving || r.awaited) && r.kernels == 0
}

// TryBegin begins a request and returns true, or returns false where Begin would block. For a kernel it also returns
// false unless all allocations are on the device.
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

// BeginKernel begins a kernel: it retrieves all allocations that are away from the device, for which other processes
// make room. The caller holds the engine for kernels. BeginKernel returns ErrNoRoom when stop returns true.
func (r *Set) BeginKernel(stop func() bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.moving || r.entering || r.giving || r.away > 0 && r.shared > 0 {
		if stop != nil && stop() {
			r.awaited = false
			return ErrNoRoom
		}
		r.awaited = r.away > 0 && !r.giving
		r.changed.Wait()
	}
	r.awaited = false
	if r.away > 0 {
		r.entering = true
		err := r.retrieve(stop)
		r.entering = false
		r.changed.Broadcast()
		if err != nil {
			return err
		}
	}
	r.began(true)
	return nil
}

// Wanted reports whether an eviction for another process waits for the executing requests to end.
func (r *Set) Wanted() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.giving
}

// Yield blocks until no eviction waits, or stop returns true. A caller that begins one kernel after another calls it
// before the next one, since an eviction could otherwise wait for ever. The executing kernels must end without further
// launches.
func (r *Set) Yield(stop func() bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.giving && !stop() {
		r.changed.Wait()
	}
}

// Look makes blocked calls evaluate their stop functions again.
func (r *Set) Look() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changed.Broadcast()
}

// Claim takes n bytes of the device for a use other than an allocation. They are never evicted, and other processes make
// room for them. The caller holds the engine for kernels. The ledger's Vacate gives the bytes back. Claim with n = 0
// makes other processes evict until Free is no longer negative after ForceOccupy.
func (r *Set) Claim(n uint64, stop func() bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.claim(n, stop)
}

// claim is Claim. r.mu is held, except while it waits.
func (r *Set) claim(n uint64, stop func() bool) error {
	r.queue()
	defer r.unqueue()
	r.mu.Unlock()
	defer r.mu.Lock()
	return r.makeRoom(n, stop)
}

// End ends a request that Begin, TryBegin or BeginKernel began.
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

// retrieve moves all allocations to the device. Until then it keeps its place in the queue, so that no other process
// requests the room that has just been made. r.mu is held, except while it waits or moves bytes.
func (r *Set) retrieve(stop func() bool) error {
	r.queue()
	defer r.unqueue()
	for r.away > 0 {
		need := r.away
		r.mu.Unlock()
		err := r.makeRoom(need, func() bool { return stop != nil && stop() || r.Away() == 0 })
		r.mu.Lock()
		if err != nil && r.away == 0 {
			return nil // the memory has been freed meanwhile
		}
		if err != nil {
			return err
		}
		for r.moving || r.giving { // for a process that was ahead
			r.changed.Wait()
		}
		r.moving = true
		left, err := r.bringBackAll(need)
		r.moving = false
		r.changed.Broadcast()
		if left > 0 {
			r.ledger.Vacate(left)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// bringBackAll moves objects to the device, for which n bytes are occupied there, and returns the rest of these bytes.
// r.mu is held, except while the bytes are moved.
func (r *Set) bringBackAll(n uint64) (left uint64, err error) {
	for _, o := range r.missing() {
		if o.bytes > n {
			break // it was added or evicted meanwhile
		}
		if err := r.bringBack(o); err != nil {
			return n, err
		}
		n -= o.bytes
	}
	return n, nil
}

// queue and unqueue count the calls that wait for room. r.mu is held.
func (r *Set) queue() {
	if r.waits++; r.waits == 1 {
		r.ledger.Queue()
	}
}

func (r *Set) unqueue() {
	if r.waits--; r.waits == 0 {
		r.ledger.Unqueue()
	}
}

// missing returns the objects that are not on the device, by address. r.mu is held.
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

// bringBack moves an object to the device, where its bytes are counted already. r.mu is held, except while the bytes are
// moved.
func (r *Set) bringBack(o *object) error {
	if o.home == area {
		r.ledger.VacateHost(o.bytes)
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

// answer evicts allocations at the requests of other processes, until Close.
func (r *Set) answer() {
	for !r.closing() {
		if _, ok := r.ledger.Asked(); ok {
			r.give()
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

// give waits for the executing requests, and then evicts the bytes that the pending request of another process is for.
func (r *Set) give() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.giving = true
	defer func() { r.giving = false; r.changed.Broadcast() }()
	end := time.Now().Add(maxWait + slice) // the request that give began for is withdrawn by then
	defer time.AfterFunc(maxWait+2*slice, r.Look).Stop()
	for r.moving || r.shared > 0 {
		if _, still := r.ledger.Asked(); !still || r.stopping || time.Now().After(end) {
			return
		}
		r.changed.Wait()
	}
	a, ok := r.ledger.Asked() // another one may have come meanwhile
	if !ok {
		return
	}
	limit := ^uint64(0)
	if !a.Pressing {
		limit = r.ledger.MayGive()
	}
	r.moving = true
	for _, o := range choose(r.listed(), a.Bytes, limit) {
		r.moveOut(o)
	}
	r.moving = false
}

// listed returns all objects, and marks them as used by the latest launch. r.mu is held.
func (r *Set) listed() []*object {
	all := make([]*object, 0, len(r.objects))
	for _, o := range r.objects {
		o.used = max(o.used, r.launched)
		all = append(all, o)
	}
	return all
}

// moveOut evicts an object: to the area if there is room, which copies no bytes, else to host memory. r.mu is held,
// except while the bytes are moved.
func (r *Set) moveOut(o *object) {
	if r.ledger.OccupyHost(o.bytes) {
		r.settle(o, area)
	} else {
		r.mu.Unlock()
		err := r.store.Evict(o.addr, o.bytes)
		r.mu.Lock()
		if err != nil {
			return // it stays
		}
		r.settle(o, host)
		r.ledger.Vacate(o.bytes)
	}
	r.moved(o.bytes, 0, r.away)
}

// clearArea moves the objects in the area to host memory, until Close: other processes may need the area, and can
// compute during the copy.
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

// carry moves an object from the area to host memory. It returns false if no object can be moved now: it never waits for
// a request, since its caller holds an engine that the request may need.
func (r *Set) carry() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.moving || r.entering || r.shared > 0 || r.stashed == 0 {
		return false
	}
	all := r.missing()
	o := all[slices.IndexFunc(all, func(o *object) bool { return o.home == area })]
	r.moving = true
	r.mu.Unlock()
	err := r.store.Evict(o.addr, o.bytes)
	r.mu.Lock()
	r.moving = false
	r.changed.Broadcast()
	if err != nil {
		return false
	}
	r.settle(o, host)
	r.ledger.VacateHost(o.bytes)
	return true
}
