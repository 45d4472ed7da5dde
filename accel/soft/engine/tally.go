package engine

import "sync/atomic"

// tally is a sum of durations, in nanoseconds, to which each ticket of one token adds at most once, whichever process
// adds it and however often.
//
// mark is (ticket+1)<<1 | the index of the word that counts. Tickets are added in ascending order. A process writes the
// sum into the other word, and then exchanges mark. The sum of a ticket is a function of the words before it, so a
// process that takes over from a dead one writes the same value. A process that was stopped between two steps finds that
// its compare-and-swap fails: mark only grows, and so does each word, since no ticket adds 0.
type tally struct {
	mark atomic.Uint64
	ns   [2]atomic.Int64
}

// add adds the duration of a ticket, which is more than 0, unless it was added already.
func (y *tally) add(ticket uint64, ns int64) {
	mark := y.mark.Load()
	if mark>>1 > ticket {
		return
	}
	now, next := &y.ns[mark&1], &y.ns[mark&1^1]
	old, sum := next.Load(), now.Load()+ns
	if y.mark.Load() != mark { // sum may be that of a later ticket
		return
	}
	pass()
	next.CompareAndSwap(old, sum)
	pass()
	y.mark.CompareAndSwap(mark, (ticket+1)<<1|mark&1^1)
}

// load returns the sum and the number of tickets served up to the latest one that was added.
func (y *tally) load() (sum int64, tickets uint64) {
	for range loadTries {
		mark := y.mark.Load()
		sum, tickets = y.ns[mark&1].Load(), mark>>1
		if y.mark.Load() == mark {
			break
		}
	}
	return sum, tickets
}

// loadTries bounds how often load reads a sum that changes meanwhile; a ticket lasts longer than the read, unless a
// worker overwrites the page.
const loadTries = 1000

// passed is nil except in tests, which end or delay a process in it: between a read of the page and each write that
// depends on it.
var passed func()

func pass() {
	if passed != nil {
		passed()
	}
}
