package engine

import (
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// slice is how long a waiter sleeps before it looks whether the holder still lives.
const slice = 50e6

// spinTurns bounds how often a waiter looks before it sleeps, if it may spin at all.
const spinTurns = 2000

// place is what this process has of a page.
type place struct {
	page  *Page
	index int
	epoch uint16
	me    uint64 // owner word: of this epoch and process
	lock  int    // the description whose lock says that we live
}

// Worker is this process's place in the page of its domain, where it queues for the engines, and in the page of the
// accelerator, which says who has how much of the memory; the two may be one page. A token is acquired and released
// by one goroutine at a time; different tokens may be used at the same time.
type Worker struct {
	place         // in the domain's page
	memory place  // in the accelerator's page
	bell   *atomic.Uint32 // of the accelerator
	clock  func() int64
	ticket [NumTokens]uint64
}

// Register takes a place for this process in a page that is the accelerator's and the domain's at once. clock reads
// CLOCK_MONOTONIC in nanoseconds; nil means Now.
func (p *Page) Register(clock func() int64) (*Worker, error) { return p.RegisterWith(p, clock) }

// RegisterWith takes a place for this process in the page of an accelerator and in that of its domain there.
func (p *Page) RegisterWith(domain *Page, clock func() int64) (w *Worker, err error) {
	if clock == nil {
		clock = Now
	}
	w = &Worker{bell: &p.l.bell, clock: clock}
	if w.place, err = domain.take(); err != nil {
		return nil, err
	}
	w.memory = w.place
	if domain != p {
		if w.memory, err = p.take(); err != nil {
			w.place.leave()
			return nil, err
		}
	}
	return w, nil
}

// take takes a place for this process.
func (p *Page) take() (place, error) {
	fd, err := p.newDescription()
	if err != nil {
		return place{}, err
	}
	for i := range p.l.workers {
		if !lockSlot(fd, i) {
			continue
		}
		s := &p.l.workers[i]
		if o := s.owner.Load(); ownerPid(o) != 0 {
			p.release(i, o) // whoever had the slot is dead
		}
		at := place{page: p, index: i, epoch: ownerEpoch(s.owner.Load()), lock: fd}
		at.me = ownerWord(at.epoch, os.Getpid())
		s.start(at.epoch)
		raise(&p.l.high, uint32(i+1))
		s.owner.Store(at.me)
		return at, nil
	}
	unix.Close(fd)
	return place{}, ErrFull
}

func (at *place) leave() {
	at.page.release(at.index, at.me)
	unix.Close(at.lock)
}

// slot is the place's.
func (at *place) slot() *workerSlot { return &at.page.l.workers[at.index] }

func raise(v *atomic.Uint32, to uint32) {
	for n := v.Load(); n < to && !v.CompareAndSwap(n, to); n = v.Load() {
	}
}

// Close gives the places back with all that was reserved. No token may be held.
func (w *Worker) Close() {
	w.place.leave()
	if w.memory.page != w.page {
		w.memory.leave()
	}
}

// Page is the accelerator's page.
func (w *Worker) Page() *Page { return w.memory.page }

// Acquire waits for a token and returns when it was got: at once, or when the holder before released it, though
// this process may not have noticed that for a while. It returns false when stop is set (Nudge makes it look at
// once), or when the page is damaged and the daemon has not mended it in damageTime. A ticket that was lost with the
// damage is claimed again.
func (w *Worker) Acquire(k Token, stop *atomic.Bool) (since int64, ok bool) {
	t := &w.page.l.tokens[k]
	now := w.ask(k)
	for try := 0; ; try++ {
		if n, ok := t.claim(w.index, w.epoch, false); ok {
			w.ticket[k] = n
			if (t.serving.Load() == n || w.wait(k, n, stop)) && w.enter(k, n, stop) {
				return w.got(k, n, now), true
			}
		}
		if stop != nil && stop.Load() || w.clock()-now > damageTime && try > 100 {
			return 0, false
		}
		time.Sleep(time.Millisecond) // not so long as the page is intact
		w.page.recover(k, w.clock())
	}
}

// damageTime is how long a worker claims tickets of a damaged page again.
const damageTime = 1e9

// TryAcquire takes a token if nobody holds or waits for it.
func (w *Worker) TryAcquire(k Token) (since int64, ok bool) {
	t := &w.page.l.tokens[k]
	g := &w.page.l.grants[k]
	if t.taken() || !g.free() {
		return 0, false
	}
	now := w.ask(k)
	n, ok := t.claim(w.index, w.epoch, true)
	if !ok {
		return 0, false
	}
	if word := g.load(); word.mode() != present || !g.change(word, word.by(n)) { // the daemon took it just now
		w.page.end(k, n, now)
		return 0, false
	}
	w.ticket[k] = n
	return w.got(k, n, now), true
}

// ask notes when the worker asks for a token: a process that ends the ticket reads it.
func (w *Worker) ask(k Token) int64 {
	now := w.clock()
	s := w.slot()
	s.wants[k].Store(now)
	if s.owner.Load() != w.me { // the slot is this process's as long as it has the lock: another has written over it
		s.owner.Store(w.me)
	}
	return now
}

// got returns since when ticket n, which was asked for at a time, is served.
func (w *Worker) got(k Token, n uint64, asked int64) int64 {
	return max(w.page.l.tokens[k].slot(n-1).end.Load(), asked, w.page.l.grants[k].since.Load())
}

// Release hands a token on and returns when.
func (w *Worker) Release(k Token) int64 { return w.ReleaseAt(k, w.clock()) }

// ReleaseAt hands a token on and has it count as held until end, which is not in the future. It returns that time, or
// a later one if the token was got after it: a token counts as held for a nanosecond at least.
func (w *Worker) ReleaseAt(k Token, end int64) int64 {
	n := w.ticket[k]
	if w.page.end(k, n, end) {
		w.ring()
	}
	return w.page.l.tokens[k].slot(n).end.Load()
}

// wait returns true when ticket n is served, false when it was given up because
// stop was set, or lost because the page is damaged.
func (w *Worker) wait(k Token, n uint64, stop *atomic.Bool) bool {
	t := &w.page.l.tokens[k]
	s := t.slot(n)
	if !w.Saturated() && w.TrySpin() {
		for i := 0; i < spinTurns && t.serving.Load() != n; i++ {
			pause()
		}
		w.EndSpin()
	}
	for t.serving.Load() != n {
		if stop != nil && stop.Load() {
			w.abandon(k, n)
			return false
		}
		s.parked.Store(1)
		if t.serving.Load() == n {
			break
		}
		if futexWait(&s.parked, slice) {
			w.page.recover(k, w.clock())
			w.disown(k, n)
			if mine := claimWord(n, w.index, w.epoch); t.serving.Load() != n && (s.word.Load() != mine || !t.sane()) {
				w.abandon(k, n)
				return false
			}
		}
	}
	s.parked.Store(0)
	return true
}

// disown ends the ticket that is being served if it is this worker's and not n, for which it waits: it lost that when the
// page was damaged, and the others would wait for it.
func (w *Worker) disown(k Token, n uint64) {
	t := &w.page.l.tokens[k]
	if other := t.serving.Load(); other != n && t.slot(other).word.Load() == claimWord(other, w.index, w.epoch) {
		w.page.end(k, other, w.clock())
	}
}

// abandon marks ticket n so that it is skipped, and skips it if its turn has come meanwhile.
func (w *Worker) abandon(k Token, n uint64) {
	t := &w.page.l.tokens[k]
	s := t.slot(n)
	s.parked.Store(0)
	word := claimWord(n, w.index, w.epoch)
	s.word.CompareAndSwap(word, word|abandoned)
	if t.serving.Load() == n && w.page.end(k, n, w.clock()) {
		w.ring()
	}
}

// Nudge makes an Acquire of this worker that is asleep look at its stop flag.
func (w *Worker) Nudge(k Token) {
	t := &w.page.l.tokens[k]
	for n, tail := t.serving.Load(), t.tail.Load(); n < tail && tail-n <= slotsPerToken; n++ {
		if s := t.slot(n); s.word.Load() == claimWord(n, w.index, w.epoch) {
			s.wake()
			wakeParked(&w.page.l.grants[k].parked)
		}
	}
}

// start makes a slot that of a new owner, who has nothing yet.
func (s *workerSlot) start(epoch uint16) {
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
	s.account.Store(0)
	for k := range s.executes {
		s.executes[k].Store(0)
	}
}

// Reserve adds n bytes to what this process has of the accelerator's memory,
// unless there is not that much left for it.
func (w *Worker) Reserve(n uint64) bool {
	if n > memoryMask/2 || n > w.memory.page.Capacity() {
		return false
	}
	s := w.memory.slot()
	for range 2 {
		s.memory.Add(n) // first counted, then checked: dying in between loses nothing
		if w.Room() >= 0 {
			return true
		}
		s.memory.Add(-n)
		w.memory.page.Sweep()
	}
	return false
}

// ReserveCommons says how many bytes this process's domain has of its own now. More than
// before it gets only if there is room, and if all processes still fit beside it.
func (w *Worker) ReserveCommons(bytes uint64) bool {
	p := w.memory.page
	domain := w.memory.slot().domain.Load()
	c := p.commonOf(domain)
	if c == nil {
		return bytes == 0
	}
	before := c.bytes.Load()
	p.SetCommons(domain, bytes) // first counted, then checked
	if bytes <= before || w.Room() >= 0 && p.largest()+p.stays() <= p.Capacity() {
		return true
	}
	p.SetCommons(domain, before)
	return false
}

// largest is the most that one worker has reserved beside what never leaves the device.
func (p *Page) largest() (most uint64) {
	for i := range p.slots() {
		s := &p.l.workers[i]
		owner := s.owner.Load()
		has := s.memory.of(owner)
		most = max(most, has-min(has, s.pinned.of(owner)))
	}
	return most
}

// Pin keeps n bytes that this process has reserved on the device for good, if all processes still fit beside what
// stays there: a kernel needs all that its process has.
func (w *Worker) Pin(n uint64) bool {
	p, s := w.memory.page, w.memory.slot()
	if p.fixed.swap == 0 {
		return true
	}
	s.pinned.Add(n) // first counted, then checked
	if p.largest()+p.stays() <= p.Capacity() {
		return true
	}
	s.pinned.Add(-n)
	return false
}

// Unpin ends that.
func (w *Worker) Unpin(n uint64) {
	if w.memory.page.fixed.swap != 0 {
		w.memory.slot().pinned.Add(-n)
	}
}

// Room is how much more this process may reserve, in bytes; less than 0: it has too much.
func (w *Worker) Room() int64 {
	p, s := w.memory.page, w.memory.slot()
	me := s.domain.Load()
	all := p.Commons()
	var unused, promised uint64
	for i := range p.slots() {
		all += p.l.workers[i].memory.of(p.l.workers[i].owner.Load())
		if d, guarantee, has := p.domainAt(i); d != me && guarantee > 0 {
			unused += guarantee - min(has, guarantee)
			promised += guarantee
		}
	}
	left := int64(p.fixed.memory+p.fixed.swap) - int64(all) - int64(unused)
	if p.fixed.swap == 0 {
		return left
	}
	// What one process has must fit the device, beside what others were promised.
	owner := w.memory.me
	return min(left, int64(p.Capacity())-int64(s.memory.of(owner))-int64(promised)-int64(p.stays()-s.pinned.of(owner)))
}

// domainAt is the domain of worker i with its guarantee and what its workers have
// reserved, if i is its first worker; else there is no guarantee.
func (p *Page) domainAt(i int) (domain, guarantee, has uint64) {
	s := &p.l.workers[i]
	domain = s.domain.Load()
	if ownerPid(s.owner.Load()) == 0 || s.guarantee.Load() == 0 {
		return domain, 0, 0
	}
	has = p.commonBytes(domain)
	for k := range p.slots() {
		o := &p.l.workers[k]
		owner := o.owner.Load()
		if ownerPid(owner) == 0 || o.domain.Load() != domain {
			continue
		}
		if k < i {
			return domain, 0, 0
		}
		guarantee = max(guarantee, o.guarantee.Load())
		has += o.memory.of(owner)
	}
	return domain, guarantee, has
}

// SetShare says which domain the worker belongs to, what that was promised of the
// device memory, and how much it matters. The time for which the worker holds engines is charged to the
// domain's account if there is one; the worker holds none meanwhile.
func (w *Worker) SetShare(domain, guarantee uint64, priority int) {
	s := w.memory.slot()
	s.domain.Store(domain)
	s.guarantee.Store(guarantee)
	s.priority.Store(int32(priority))
	w.slot().account.Store(w.page.accountOf(domain))
}

// Charge books time of an engine that is not held by its token.
func (w *Worker) Charge(k Token, ns int64) {
	w.page.account(w.slot().account.Load()).added[k].Add(ns)
}

// Executes notes since when an engine that is not held by its token does something for this worker that is not charged
// yet; 0: it does nothing. If the worker dies, it is charged from then on until it is reaped.
func (w *Worker) Executes(k Token, since int64) {
	w.slot().executes[k].Store(since)
}

// Unreserve gives back n bytes.
func (w *Worker) Unreserve(n uint64) { w.memory.slot().memory.Add(-n) }

// TrySpin asks for one of the host's seats for spinning threads. Who got one gives it back with EndSpin.
func (w *Worker) TrySpin() bool {
	m := &w.memory
	for i := range m.page.fixed.seats {
		s := &m.page.l.seat[i%maxSeats]
		if s.Load() == 0 && s.CompareAndSwap(0, m.me) {
			return true
		}
	}
	return false
}

// EndSpin gives one seat of this process back.
func (w *Worker) EndSpin() {
	m := &w.memory
	for i := range m.page.fixed.seats {
		if m.page.l.seat[i%maxSeats].CompareAndSwap(m.me, 0) {
			return
		}
	}
}
