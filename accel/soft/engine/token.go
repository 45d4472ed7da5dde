package engine

import "sync/atomic"

// slotsPerToken is the length of a token's queue: every worker waits for a token at most once at a time.
const slotsPerToken = 2 * MaxWorkers

// ticketWord names a ticket and who claimed it: ticket<<28 | epoch<<12 | worker+1.
// Low bits of zero mean that nobody has claimed the ticket yet; allOnes in the
// worker field means that its claimant has given it up or died.
type ticketWord uint64

const (
	ticketBits = 36
	ticketMask = 1<<ticketBits - 1
	workerMask = 1<<12 - 1
	abandoned  = workerMask
)

func freeWord(ticket uint64) ticketWord { return ticketWord(ticket&ticketMask) << 28 }

func claimWord(ticket uint64, worker int, epoch uint16) ticketWord {
	return freeWord(ticket) | ticketWord(epoch)<<12 | ticketWord(worker+1)
}

func (w ticketWord) claims(ticket uint64) bool {
	return w>>28 == ticketWord(ticket&ticketMask) && w&workerMask != 0
}
func (w ticketWord) worker() (int, uint16) { return int(w&workerMask) - 1, uint16(w >> 12) }
func (w ticketWord) abandoned() bool       { return w&workerMask == abandoned }

// waitSlot is a ticket's place in the queue.
type waitSlot struct {
	word   atomicWord
	since  atomic.Int64  // when the holder got the token, 0 if it has not yet
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
	busyNs  atomic.Int64
	_       [56]byte
	slots   [slotsPerToken]waitSlot
}

func (t *tokenWords) init() {
	for i := range t.slots {
		t.slots[i].word.Store(freeWord(uint64(i)))
	}
}

func (t *tokenWords) slot(ticket uint64) *waitSlot { return &t.slots[ticket%slotsPerToken] }

// busy says whether anyone holds or waits for the token.
func (t *tokenWords) busy() bool { return t.serving.Load() != t.tail.Load() }

// sane says whether the counters can be true. They are not only if somebody
// scribbled over the page; then Acquire fails instead of waiting for ever.
func (t *tokenWords) sane() bool { return t.tail.Load()-t.serving.Load() <= slotsPerToken }

// claim takes the next ticket. With onlyIfFree it takes one only if that gives
// the token at once.
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
			return 0, false // the queue is full, which bounds on workers exclude, or the words are garbage
		}
	}
}

// end closes a ticket that is being served and hands the token on. word is what
// the caller saw in the ticket's slot: of several who try, one succeeds.
func (t *tokenWords) end(ticket uint64, word ticketWord, now int64) {
	s := t.slot(ticket)
	if since := s.since.Swap(0); since != 0 {
		t.busyNs.Add(max(now-since, 0))
	}
	s.word.CompareAndSwap(word, freeWord(ticket+slotsPerToken))
	t.advance(ticket, now)
}

// advance serves the ticket after the given one, and skips those that were abandoned.
func (t *tokenWords) advance(ticket uint64, now int64) {
	if !t.serving.CompareAndSwap(ticket, ticket+1) {
		return
	}
	next := ticket + 1
	s := t.slot(next)
	w := s.word.Load()
	if w.claims(next) && w.abandoned() {
		t.end(next, w, now)
		return
	}
	s.wake()
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
