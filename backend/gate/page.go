package gate

import (
	"fmt"
	"math"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"pegasus/accel"
	"pegasus/callbuf"
)

// Page is the gate of one aVCPU. The accelerator's scheduler loop calls the daemon's methods from one goroutine, except
// the methods that document otherwise.
type Page struct {
	file *os.File
	mem  []byte
	at   *layout

	clearing sync.Mutex // held while segments are cleared, and by Free

	// The daemon's own copy of the words that it alone writes: see Intact.
	wrote words
	stops bool             // see SetStops
	ran   [NumClasses]bool // see Ran

	shortFirst bool // see wake; the scheduler loop's

	top atomic.Int32 // slots from here on were never taken; workers can overwrite the page's count

	// The daemon's own record of the slots, so that no use is counted twice.
	seen   [Slots]seen
	ended  [NumClasses]uint64 // requests ended by workers reaped since the last Look
	passed [NumClasses]uint64 // requests of reaped workers ever admitted
}

// seen holds a slot's counts at the last Look.
type seen struct {
	ended   [NumClasses]uint64
	paused  int64
	pauses  uint64
	arrived uint32
}

// States of a slot.
const (
	slotFree  = iota
	slotTaken // assigned to a worker that has not joined yet
	slotJoined
)

// New allocates a Page with a closed gate and no memory quota.
func New() (*Page, error) {
	f, err := newFile("pegasus-gate", pageBytes)
	if err != nil {
		return nil, err
	}
	mem, err := mapFile(f, pageBytes)
	if err != nil {
		f.Close()
		return nil, err
	}
	p := &Page{file: f, mem: mem, at: pageAt(mem)}
	p.at.magic, p.at.version, p.at.header.slots = pageMagic, pageVersion, Slots
	for k := range p.at.memory {
		p.at.memory[k].quota.Store(math.MaxUint64)
	}
	p.at.daemon.Store(uint32(os.Getpid()))
	p.wrote = p.words()
	return p, nil
}

// Adopt maps a Page of a previous daemon and takes ownership of it and of the file. Earlier use counts as already
// reported.
func Adopt(f *os.File) (*Page, error) {
	p, err := Map(f)
	if err != nil {
		return nil, err
	}
	p.succeed()
	p.wrote = p.words()
	p.top.Store(Slots)
	for i := range p.seen {
		p.look(i)
	}
	return p, nil
}

// Map maps a Page that another process allocated, and takes ownership of the file.
func Map(f *os.File) (*Page, error) {
	mem, err := mapFile(f, pageBytes)
	if err != nil {
		return nil, err
	}
	p := &Page{file: f, mem: mem, at: pageAt(mem)}
	if p.at.magic != pageMagic || p.at.version != pageVersion || p.at.header.slots != Slots {
		unix.Munmap(mem)
		return nil, ErrPage
	}
	return p, nil
}

// File returns the memfd, to be passed to workers. The Page keeps ownership.
func (p *Page) File() *os.File { return p.file }

// Free unmaps the Page in this process. It blocks until ClearSegments has returned.
func (p *Page) Free() error {
	p.clearing.Lock()
	defer p.clearing.Unlock()
	p.at = nil
	p.file.Close()
	return unix.Munmap(p.mem)
}

// Grant opens the gate under these terms, or replaces the terms in force for these classes. There is one lease for all
// classes together, or one for each.
func (p *Page) Grant(t Terms) {
	h := &p.at.header
	kind := uint32(termOpen)
	if t.Budget != 0 {
		kind |= termBudget
	}
	if t.Requests != 0 {
		kind |= termRequests
	}
	mine := leaseOf(t.Classes)
	for i := range h.leases {
		if i == mine || i == 0 || mine == 0 {
			p.setTerms(i, 0) // no worker takes from a mixture of two leases
		}
	}
	l := &h.leases[mine]
	p.wrote.deadline[mine] = t.Until
	l.deadline.Store(t.Until)
	l.budget.Store(t.Budget)
	l.requests.Store(t.Requests)
	p.wrote.lent[mine] = t.Budget
	l.lent.Store(t.Budget)
	l.used.Store(0)
	for c := range NumClasses {
		if t.Classes.Has(c) {
			h.overrun[c].Store(0)
		}
	}
	p.setTerms(mine, kind)
	p.changed()
	p.wake(t)
}

// wake wakes the workers' threads that wait for a lease with these terms: all that wait for a turn of admitted work,
// and as many that wait at the gate as the lease admits. A domain may have a hundred processes that wait: to wake them
// all for one request would take a millisecond of the processors that execute it.
//
// The kernel wakes the threads first that have slept for the longest. Threads that sleep for short times, since they
// also wait for something else, would always be the last; so the two kinds go first by turns.
func (p *Page) wake(t Terms) {
	turns, first, second := waits(0), waits(0), waits(0)
	for c := range NumClasses {
		if t.Classes.Has(c) {
			turns |= forTurn(c)
			first |= toEnter(c)
			second |= toEnterSoon(c)
		}
	}
	if t.Requests == 0 {
		callbuf.FutexWakeOf(&p.at.generation, 1<<30, uint32(turns|first|second))
		return
	}
	callbuf.FutexWakeOf(&p.at.generation, 1<<30, uint32(turns))
	if p.shortFirst = !p.shortFirst; p.shortFirst {
		first, second = second, first
	}
	n := int(min(t.Requests, 1<<30))
	if n -= callbuf.FutexWakeOf(&p.at.generation, n, uint32(first)); n > 0 {
		callbuf.FutexWakeOf(&p.at.generation, n, uint32(second))
	}
}

// waits is a set of the events that threads sleep for at the futex word `generation`.
type waits uint32

// toEnter returns the wait for admission of a request at a closed gate.
func toEnter(c Class) waits { return 1 << c }

// forTurn returns the wait of admitted work for its turn.
func forTurn(c Class) waits { return 1 << (NumClasses + c) }

// toEnterSoon is toEnter for a thread that sleeps for less than defaultSlice at a time.
func toEnterSoon(c Class) waits { return 1 << (2*NumClasses + c) }

// anyEnter is the wait for admission of any request.
const anyEnter = waits(1<<NumClasses-1) * (1 | 1<<(2*NumClasses))

func (p *Page) setTerms(lease int, kind uint32) {
	p.wrote.terms[lease] = kind
	p.at.leases[lease].terms.Store(kind)
}

// leaseOf returns the index of the lease for these classes: 0 for all of them.
func leaseOf(s Classes) int {
	switch s {
	case ComputeOnly:
		return 1 + int(Compute)
	case CopyOnly:
		return 1 + int(Copy)
	}
	return 0
}

// Revoke closes the gate for these classes. Submitted work runs to its end, within the limit of Member.AwaitTurn.
func (p *Page) Revoke(s Classes) {
	p.setTerms(leaseOf(s), 0)
	if s == AllClasses {
		for i := range p.at.leases {
			p.setTerms(i, 0)
		}
	}
	p.changed() // which ends no wait
}

func (p *Page) changed() {
	p.wrote.generation++
	p.at.generation.Store(p.wrote.generation)
}

// Tick promises another Tick of the daemon before aliveUntil (CLOCK_MONOTONIC ns).
func (p *Page) Tick(aliveUntil int64) {
	p.wrote.aliveUntil = aliveUntil
	p.at.aliveUntil.Store(aliveUntil)
}

// SetStops sets whether the accelerator preempts work at the end of its domain's turn, to resume it in the next one. If
// so, admitted work counts as waiting for a lease while its domain has none, whether it still computes or waits for the
// engine behind another domain's work. Work that waits for anything else, such as its guest, does not count.
func (p *Page) SetStops(stops bool) { p.stops = stops }

// Ran records for each class whether the domain has held an engine since the last Look.
func (p *Page) Ran(compute, copies bool) { p.ran = [NumClasses]bool{Compute: compute, Copy: copies} }

// SetInFlightLimit bounds the predicted nanoseconds in flight per class; 0 is no bound.
func (p *Page) SetInFlightLimit(ns int64) {
	p.wrote.inFlightLimit = ns
	p.at.inFlightLimit.Store(ns)
}

// words are the words of a page that only the daemon's scheduler loop writes.
type words struct {
	magic         uint64
	version       uint32
	slots         uint32
	generation    uint32
	aliveUntil    int64
	inFlightLimit int64
	terms         [numLeases]uint32
	deadline      [numLeases]int64
	lent          [numLeases]int64
}

func (p *Page) words() (w words) {
	h := &p.at.header
	w.magic, w.version, w.slots = h.magic, h.version, h.slots
	w.generation, w.aliveUntil, w.inFlightLimit = h.generation.Load(), h.aliveUntil.Load(), h.inFlightLimit.Load()
	for i := range h.leases {
		w.terms[i], w.deadline[i], w.lent[i] = h.leases[i].terms.Load(), h.leases[i].deadline.Load(), h.leases[i].lent.Load()
	}
	return w
}

// Intact reports whether the words that only the daemon writes have the values that it wrote. They decide when the
// domain's gate is open, so a worker that changes one is hostile. Mend restores them.
func (p *Page) Intact() bool { return p.words() == p.wrote }

// Mend restores the words that only the daemon writes.
func (p *Page) Mend() {
	h := &p.at.header
	h.magic, h.version, h.slots = p.wrote.magic, p.wrote.version, p.wrote.slots
	h.aliveUntil.Store(p.wrote.aliveUntil)
	h.inFlightLimit.Store(p.wrote.inFlightLimit)
	for i := range h.leases {
		h.leases[i].deadline.Store(p.wrote.deadline[i])
		h.leases[i].lent.Store(p.wrote.lent[i])
		h.leases[i].terms.Store(p.wrote.terms[i])
	}
	p.changed()
	callbuf.FutexWake(&p.at.generation, 1<<30)
}

// Watch sets the drain watch: the next worker that runs out of work rings the doorbell. One Watch allows one ring, so
// that short requests do not wake the daemon needlessly.
func (p *Page) Watch() { p.at.watch.Store(1) }

// TakeSlot reserves a slot for a worker that is about to be started. Calls must not be concurrent.
func (p *Page) TakeSlot() (int, error) {
	for i := range p.at.slot {
		p.top.Store(max(p.top.Load(), int32(i)+1))
		p.at.top.Store(max(p.at.top.Load(), uint32(i)+1)) // first, so that a later reader of top finds the slot taken here
		if p.at.slot[i].state.CompareAndSwap(slotFree, slotTaken) {
			return i, nil
		}
	}
	return 0, fmt.Errorf("%w: %d workers", ErrFull, Slots)
}

// taken returns the slots that may have workers. Workers call it: the daemon uses its own count.
func (l *layout) taken() []slot { return l.slot[:min(l.top.Load(), Slots)] }

// Occupants returns the slots that are not free, each with the pid of the worker that joined there, or 0 if none has.
func (p *Page) Occupants() map[int]int {
	all := map[int]int{}
	for i := range int(p.top.Load()) {
		if s := &p.at.slot[i]; s.state.Load() != slotFree {
			all[i] = int(s.pid.Load())
		}
	}
	return all
}

// Reap frees the slot of a dead worker: its work in flight counts as ended, and its memory returns to the domain's
// quota. The next Look reports the ended requests.
func (p *Page) Reap(i int) {
	s := &p.at.slot[i]
	for c, n := range p.look(i).Ended {
		p.ended[c] += n
	}
	for c := range s.admitted {
		p.passed[c] += s.admitted[c].Swap(0)
	}
	for k := range s.memory {
		s.memory[k].Store(0)
	}
	p.dropHoldings(i)
	p.dropPlaces(i)
	for c := range s.inFlight {
		s.inFlight[c].Store(0)
		p.ended[c] += uint64(within(s.requests[c].Swap(0), maxRequests)) // the domain must not wait for them
		s.held[c].Store(0)
		s.queued[c].Store(0)
	}
	for c := range s.used {
		s.used[c].Store(0)
	}
	for c := range s.ended {
		s.ended[c].Store(0)
	}
	for b := range s.waits {
		s.waits[b].Store(0)
	}
	for k := range s.swap {
		s.swap[k].Store(0)
	}
	for k := range s.attached {
		s.attached[k].Store(0)
	}
	s.dependent.Store(0)
	s.stood.Store(0)
	s.standing.Store(0)
	s.calls.Store(0)
	s.pending.Store(0)
	s.idleSince.Store(0)
	s.idle.Store(0)
	s.pauses.Store(0)
	s.arrived.Store(0)
	s.pid.Store(0)
	p.seen[i] = seen{}
	s.state.Store(slotFree)
	p.at.wakeLimitWaiters()
	callbuf.FutexWakeOf(&p.at.generation, 1<<30, uint32(anyEnter)) // the worker may have been woken for a lease that it did not use
}

// Work is the past and current work of a Page's workers, or of one of them.
type Work struct {
	Ended    [NumClasses]uint64 // requests that ended since the last Look
	Pending  int                // workers with a request that waits at the gate
	Heads    [NumClasses]Head   // the request that waits at the gate
	InFlight int64              // requests
	Flying   [NumClasses]int64  // requests in flight of each class
	Held     [NumClasses]int64  // requests among them that make no progress before their class's next lease: see Member.AwaitTurn
	Arrived  bool               // a request found the gate closed since the last Look
	// IdleSince is when the last worker ran out of work; 0 while one has work, or when there was none yet.
	IdleSince int64
	// Pauses is how many times work arrived at an idle worker since the last Look, and Paused the sum of those idle
	// times: of several workers, the pair with the shortest mean.
	Pauses uint64
	Paused int64 // ns
}

// Head is a request that waits at the gate, or for its turn behind it. Seq numbers a domain's requests of a class in
// the order of admission, from 1; 0: none waits.
type Head struct {
	Seq       uint64
	Predicted int64 // ns
	About
}

// Bounds on a worker's reports, so that no sum over workers or domains overflows.
const (
	maxSize     = 1 << 48 // of a request
	maxTime     = 1 << 50 // ns, 13 days: predicted, or used between two Looks
	maxRequests = 1 << 32 // in flight, or ended between two Looks
	maxStood    = 1 << 54 // ns that all requests of a worker together waited
)

// within returns n clamped to 0..most.
func within(n, most int64) int64 { return min(max(n, 0), most) }

// Busy reports whether work is pending or in flight.
func (w Work) Busy() bool { return w.Pending != 0 || w.InFlight != 0 }

// Look returns the work of all workers since the last Look, and their current work.
func (p *Page) Look() (w Work) {
	now := Now()
	w.Ended, p.ended = p.ended, [NumClasses]uint64{}
	passed := p.passed
	for i := range int(p.top.Load()) {
		if p.at.slot[i].state.Load() != slotJoined {
			continue
		}
		one := p.lookAt(i, now)
		for c := range NumClasses {
			w.Ended[c] += one.Ended[c]
			w.Flying[c] += one.Flying[c]
			w.Held[c] += one.Held[c]
			if one.Heads[c].Predicted > w.Heads[c].Predicted {
				w.Heads[c] = one.Heads[c]
			}
			passed[c] += p.at.slot[i].admitted[c].Load()
		}
		w.pause(one)
		w.Pending += one.Pending
		w.InFlight += one.InFlight
		w.Arrived = w.Arrived || one.Arrived
		w.IdleSince = max(w.IdleSince, one.IdleSince)
	}
	for c := range w.Heads {
		if w.Heads[c].Predicted > 0 {
			w.Heads[c].Seq = passed[c] + 1
		}
	}
	if w.Busy() {
		w.IdleSince = 0
	}
	return w
}

// pause merges the pauses of one worker. The shortest mean counts: while other workers of the domain work, a long pause
// of one is no pause of the domain.
func (w *Work) pause(one Work) {
	if one.Pauses == 0 {
		return
	}
	if mean := one.Paused / int64(one.Pauses); w.Pauses == 0 || mean < w.Paused/int64(w.Pauses) {
		w.Pauses, w.Paused = one.Pauses, one.Paused
	}
}

func (p *Page) look(i int) Work { return p.lookAt(i, Now()) }

func (p *Page) lookAt(i int, now int64) (w Work) {
	s, old := &p.at.slot[i], &p.seen[i]
	// Order matters: the count in flight is read before the count ended, so that all work of a worker that looks idle
	// here is in Ended.
	for c := range s.requests {
		w.Flying[c] = within(s.requests[c].Load(), maxRequests)
		w.InFlight += w.Flying[c]
	}
	if class := min(s.pending.Load(), uint32(NumClasses)); class > 0 {
		w.Pending = 1
		like := s.like.Load()
		w.Heads[class-1] = Head{Predicted: max(within(s.predicted.Load(), maxTime), 1), About: About{Key: like >> 1, Known: like&1 != 0, Size: min(s.size.Load(), maxSize)}}
	}
	for c := range s.held {
		goesOn := p.stops && w.Flying[c] > 0 && (p.ran[c] || s.queued[c].Load() != 0)
		waits := s.held[c].Load() != 0 || goesOn && !p.at.header.leased(Class(c), now)
		if waits && w.Heads[c].Predicted == 0 { // the worker may have no other request
			w.Heads[c].Predicted = max(within(s.inFlight[c].Load(), maxTime)/max(w.Flying[c], 1), 1)
		}
		// A waiting worker may not have observed yet that the gate opened; it then continues up to the in-flight limit.
		if s.held[c].Load() != 0 && p.at.overrun[c].Load() >= p.at.inFlightLimit.Load() {
			w.Held[c] = w.Flying[c]
		}
	}
	w.IdleSince = within(s.idleSince.Load(), now)
	for c := range s.ended {
		ended := s.ended[c].Load()
		w.Ended[c] = min(max(ended, old.ended[c])-old.ended[c], maxRequests)
		old.ended[c] = ended
	}
	if pauses := s.pauses.Load(); pauses > old.pauses {
		paused := s.idle.Load()
		w.Pauses, w.Paused = min(pauses-old.pauses, maxRequests), grown(paused, old.paused)
		old.pauses, old.paused = pauses, paused
	}
	arrived := s.arrived.Load()
	w.Arrived = arrived != old.arrived
	old.arrived = arrived
	return w
}

// grown returns the growth of a worker's count of ns, clamped to 0..maxTime.
func grown(now, before int64) int64 {
	if now <= before {
		return 0
	}
	return int64(min(uint64(now)-uint64(before), maxTime)) // the difference of two int64 may overflow int64
}

// Statistics are one worker's totals since it started.
type Statistics struct {
	PID              int
	Used             [accel.NumClasses]int64 // as the worker reports
	Ended            [NumClasses]uint64
	Calls            uint64
	Memory, HostUsed uint64
	Swap             Swap
	Waits            [WaitBuckets]uint64
	Stood            int64 // ns that requests waited for admission, including the one that waits now
	Idle             int64 // ns without work waiting or in flight
}

// Statistics returns a slot's totals, and whether a worker has joined there. Any goroutine may call it.
func (p *Page) Statistics(i int) (st Statistics, ok bool) {
	s := &p.at.slot[i]
	if s.state.Load() != slotJoined {
		return st, false
	}
	st.PID = int(s.pid.Load())
	for c := range st.Used {
		st.Used[c] = within(s.used[c].Load(), Now())
	}
	for c := range st.Ended {
		st.Ended[c] = s.ended[c].Load()
	}
	st.Calls = s.calls.Load()
	st.Memory, st.HostUsed = s.memory[DeviceMemory].Load(), s.memory[HostMemory].Load()
	st.Swap = s.swapped()
	for b := range st.Waits {
		st.Waits[b] = s.waits[b].Load()
	}
	st.Stood = within(s.stood.Load(), maxStood)
	if since := s.standing.Load(); since != 0 {
		st.Stood += grown(Now(), since)
	}
	st.Idle = within(s.idle.Load(), Now())
	if since := s.idleSince.Load(); since != 0 {
		st.Idle += grown(Now(), since)
	}
	return st, true
}
