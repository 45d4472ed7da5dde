package engine

// All workers of a domain can write all of its page. A worker that hostile code has taken over can so damage the queues
// of the others of its domain; the daemon detects inconsistent queues and resets them, and honest workers claim the
// tickets again that they have lost.

// mendAfter is for how long a queue must have been damaged in the same way, in ns, before it is reset: while workers
// change it, its words need not agree.
const mendAfter = 50e6

// damage is the state of a queue that Mend has observed.
type damage struct {
	ticket uint64 // that was served
	since  int64  // 0: no damage is observed
	most   uint64 // the latest ticket that was served in a queue without damage; 0: none was observed
	front  front  // of the queue when it was last found without damage
}

// front are the words of a queue that every step of a worker reads or writes: to claim a ticket, to hold the token and
// to end a ticket. The other words have no effect before these change.
type front struct {
	serving, tail, mark uint64
	holder, next        ticketWord // of the tickets serving and tail
	before, end         int64      // of the ticket before serving, and of serving
}

func (t *tokenWords) front() (f front) {
	f.serving, f.tail, f.mark = t.serving.Load(), t.tail.Load(), t.held.mark.Load()
	s := t.slot(f.serving)
	f.holder, f.next = s.word.Load(), t.slot(f.tail).word.Load()
	f.before, f.end = t.slot(f.serving-1).end.Load(), s.end.Load()
	return f
}

// mostAhead is an upper bound of the tickets that can be served between two calls of Mend.
const mostAhead = 1 << 24

// Mend resets queues that have been damaged for a while, clamps times that are in the future, and returns the number of
// damages it found, inconsistent accounts included. One goroutine of the daemon calls it, several times a second. A
// queue without damage is checked again once its front has changed, so that idle domains cost little.
func (e *Engines) Mend() (mended int) {
	now := Now()
	if e.unforge() {
		mended++
	}
	for k := range NumTokens {
		t, d := &e.l.tokens[k], &e.damage[k]
		f := t.front()
		n := f.serving
		if d.since == 0 && d.most == n && d.front == f {
			continue
		}
		// With inconsistent counters, workers that search for a dead holder may advance them without end.
		absurd := t.tail.Load()-n > slotsPerToken || d.most != 0 && n-d.most > mostAhead
		switch {
		case !absurd && t.intact(n):
			e.mendTimes(k, n, now)
			*d = damage{most: n, front: f}
		case d.since == 0 || d.ticket != n && !absurd:
			d.ticket, d.since = n, now
		case now-d.since > mendAfter:
			e.renew(k, d.most, now)
			*d = damage{most: d.most + 2*slotsPerToken}
			mended++
		}
	}
	return mended
}

// intact reports whether a queue in which ticket n is served is consistent.
func (t *tokenWords) intact(n uint64) bool {
	tail := t.tail.Load()
	if tail-n > slotsPerToken {
		return false
	}
	for ticket := n; ticket != n+slotsPerToken; ticket++ {
		w := t.slot(ticket).word.Load()
		switch i, _ := w.worker(); {
		case w.claims(ticket) && i < MaxUsers: // also where the tail was not moved yet
		case ticket == n && w == freeWord(n+slotsPerToken): // ended, but not passed on
		case ticket-n >= tail-n && w == freeWord(ticket):
		default:
			return false
		}
	}
	return true
}

// renew empties a queue. Its next ticket is one that no worker has.
func (e *Engines) renew(k Token, most uint64, now int64) {
	t := &e.l.tokens[k]
	first := (most/slotsPerToken + 2) * slotsPerToken
	for i := range t.slots {
		t.slots[i].word.Store(freeWord(first + uint64(i)))
		t.slots[i].end.Store(0)
	}
	t.slot(first - 1).end.Store(now)
	if mark := t.held.mark.Load(); mark>>1 > first {
		t.held.mark.Store(first<<1 | mark&1)
	}
	t.tail.Store(first)
	t.serving.Store(first)
	for i := range t.slots {
		t.slots[i].wake()
	}
}

// mendTimes clamps times that are in the future, and marks of tickets that were not served yet: no time would be
// charged until they come.
func (e *Engines) mendTimes(k Token, serving uint64, now int64) {
	t := &e.l.tokens[k]
	for i := range t.slots {
		if end := t.slots[i].end.Load(); end > now+mendAfter {
			t.slots[i].end.CompareAndSwap(end, now)
		}
	}
	if mark := t.held.mark.Load(); mark>>1 > serving+slotsPerToken {
		t.held.mark.CompareAndSwap(mark, serving<<1|mark&1)
	}
}
