package engine

import "sync/atomic"

// slotsPerToken is the length of a token's queue: every worker waits for a token at most once at a time.
const slotsPerToken = MaxUsers

// ticketWord names a ticket and its claimant: ticket<<28 | epoch<<12 | abandoned<<11 | worker+1.
// Low bits of zero mean that no worker has claimed the ticket yet; abandoned that its claimant has given it up or died.
type ticketWord uint64

const (
	ticketBits = 36
	ticketMask = 1<<ticketBits - 1
	workerMask = 1<<11 - 1
	abandoned  = 1 << 11
)

func freeWord(ticket uint64) ticketWord { return ticketWord(ticket&ticketMask) << 28 }

func claimWord(ticket uint64, worker int, epoch uint16) ticketWord {
	return freeWord(ticket) | ticketWord(epoch)<<12 | ticketWord(worker+1)
}

func (w ticketWord) claims(ticket uint64) bool {
	return w>>28 == ticketWord(ticket&ticketMask) && w&workerMask != 0
}
func (w ticketWord) worker() (int, uint16) { return int(w&workerMask) - 1, uint16(w >> 12) }
func (w ticketWord) abandoned() bool       { return w&abandoned != 0 }

// waitSlot is a ticket's place in the queue.
type waitSlot struct {
	word   atomicWord
	end    atomic.Int64  // when the latest ticket here ended; each ends after all before it
	parked atomic.Uint32 // futex: 1 while the claimant sleeps
	_      [44]byte
}

// tokenWords is a lock: tickets below serving are over, serving's claimant
// holds the token, tail is the next to claim. A slot's word is changed before the
// counter that makes it visible, so the counters can be repaired from the words.
type tokenWords struct {
	tail    atomic.Uint64
	_       [56]byte
	serving atomic.Uint64
	_       [56]byte
	held    tally // for how long the token was held, by tickets that are over
	_       [40]byte
	slots   [slotsPerToken]waitSlot
}

func (t *tokenWords) init() {
	for i := range t.slots {
		t.slots[i].word.Store(freeWord(uint64(i)))
	}
}

func (t *tokenWords) slot(ticket uint64) *waitSlot { return &t.slots[ticket%slotsPerToken] }

// taken reports whether a worker holds or awaits the token.
func (t *tokenWords) taken() bool { return t.serving.Load() != t.tail.Load() }

// sane reports whether the counters are consistent. They are inconsistent only if a process has overwritten the page;
// then Acquire fails instead of waiting for ever.
func (t *tokenWords) sane() bool { return t.tail.Load()-t.serving.Load() <= slotsPerToken }

// claim takes the next ticket. With onlyIfFree it does so only if the token is free.
func (t *tokenWords) claim(worker int, epoch uint16, onlyIfFree bool) (ticket uint64, ok bool) {
	for {
		n := t.tail.Load()
		if onlyIfFree && t.serving.Load() != n {
			return 0, false
		}
		s := t.slot(n)
		if s.word.CompareAndSwap(freeWord(n), claimWord(n, worker, epoch)) {
			t.tail.CompareAndSwap(n, n+1)
			return n, true
		}
		if s.word.Load().claims(n) {
			t.tail.CompareAndSwap(n, n+1) // its claimant has not come to it yet, or never will
			continue
		}
		if t.tail.Load() == n {
			return 0, false // the queue is full, which the bounds on workers exclude, or the words are inconsistent
		}
	}
}

// A token is held without a gap while tickets follow each other: a ticket is served from the end of the ticket before
// it, or from the time at which its worker requested the token, if that was later. So the time from the hand-over to
// the moment at which the next holder notices its turn is charged to the next holder.

// since returns the time from which a ticket is served. w is its slot's word, and now the present or, if the ticket has
// ended, the last nanosecond of it. The result holds only if the ticket is still served afterwards.
func (e *Engines) since(k Token, ticket uint64, w ticketWord, now int64) int64 {
	asked := now
	if i, _ := w.worker(); w.claims(ticket) && i < MaxUsers {
		asked = e.l.users[i].wants[k].Load()
	}
	return max(e.l.tokens[k].slot(ticket-1).end.Load(), min(asked, now), e.entered(k, now))
}

// end ends the ticket that is being served, and those after it that were abandoned. It takes a bounded number of steps
// for any contents of the page. It reports whether the engine was given back and the daemon has to be notified.
func (e *Engines) end(k Token, ticket uint64, now int64) (gaveBack bool) {
	for range slotsPerToken {
		e.endOne(k, ticket, now)
		ended, skip := e.advance(k, ticket)
		if e.giveBack(k, ticket, now) {
			gaveBack = true
		}
		if !skip {
			break
		}
		ticket, now = ticket+1, ended
	}
	return gaveBack
}

// endOne ends the ticket that is being served: it charges the time for which the token was held; advance passes the
// token on. If several processes do so at once, or one after the death of another, the first determines when the ticket
// ended, and each step is done once, by whichever process comes to it first. A ticket lasts at least a nanosecond.
func (e *Engines) endOne(k Token, ticket uint64, now int64) {
	t := &e.l.tokens[k]
	s := t.slot(ticket)
	old := s.end.Load()
	pass()
	before, w := t.slot(ticket-1).end.Load(), s.word.Load()
	since := e.since(k, ticket, w, now)
	if t.serving.Load() != ticket { // these words may belong to later tickets
		return
	}
	if old <= before {
		pass()
		s.end.CompareAndSwap(old, max(now, since+1))
	}
	end := s.end.Load()
	since = e.since(k, ticket, w, end-1)
	if t.serving.Load() != ticket {
		return
	}
	t.held.add(ticket, end-since)
	s.free(ticket)
}

// freeTries bounds how often free retries because a claimant has abandoned its ticket meanwhile, which happens once.
const freeTries = 8

// free frees the slot of a ticket that has ended, for a later one.
func (s *waitSlot) free(ticket uint64) {
	for range freeTries {
		w := s.word.Load()
		if w>>28 != freeWord(ticket)>>28 {
			return
		}
		pass()
		s.word.CompareAndSwap(w, freeWord(ticket+slotsPerToken))
	}
}

// advance serves the ticket after one that has ended. It returns whether that one was abandoned, so that it has to be
// ended too, and when the one before it ended.
func (e *Engines) advance(k Token, ticket uint64) (ended int64, skip bool) {
	t := &e.l.tokens[k]
	ended = t.slot(ticket).end.Load()
	pass()
	if !t.serving.CompareAndSwap(ticket, ticket+1) {
		return ended, false
	}
	next := ticket + 1
	s := t.slot(next)
	w := s.word.Load()
	if w.claims(next) && w.abandoned() {
		return ended, true
	}
	s.wake()
	return ended, false
}

func (s *waitSlot) wake() {
	if s.parked.Load() != 0 && s.parked.Swap(0) != 0 {
		futexWake(&s.parked)
	}
}

// atomicWord is an atomic ticketWord.
type atomicWord struct{ v atomic.Uint64 }

func (a *atomicWord) Load() ticketWord   { return ticketWord(a.v.Load()) }
func (a *atomicWord) Store(w ticketWord) { a.v.Store(uint64(w)) }
func (a *atomicWord) CompareAndSwap(old, new ticketWord) bool {
	return a.v.CompareAndSwap(uint64(old), uint64(new))
}
