package residence

import (
	"math"
	"sync"
	"time"
)

// makeRoom occupies n bytes. It waits for the processes that have waited longer, and then requests evictions from other
// processes until as many bytes are free. The caller is in the queue.
func (r *Set) makeRoom(n uint64, stop func() bool) error {
	w := newWaiter()
	for w.behind(&r.first, r.ledger) || !r.ledger.Occupy(n) {
		if stop != nil && stop() {
			return ErrNoRoom
		}
		if time.Since(w.progress) > maxWait {
			return ErrInUse
		}
		if w.after {
			r.ledger.AwaitAnswer(slice)
			continue
		}
		free := r.ledger.Free()
		if free >= int64(n) {
			continue
		}
		a, ok := w.next(r.ledger, n, free)
		switch {
		case ok && a.Pressing && r.ledger.Free() > free: // an owner with other bytes has just freed them
		case ok:
			sent := time.Now()
			answered := r.request(a, w.wait, stop)
			w.record(a, time.Since(sent), answered, r.ledger.Free() > free)
		case len(w.passed) == 0:
			return ErrNoRoom // no process has evictable bytes
		default:
			w.again()
			r.ledger.AwaitAnswer(slice)
		}
	}
	return nil
}

// request sends a request to another process and waits for its answer. It returns false if none came in time.
func (r *Set) request(a Ask, wait time.Duration, stop func() bool) bool {
	r.ledger.Ask(a)
	for deadline := time.Now().Add(wait); r.ledger.Asking(a.Owner); {
		if stop != nil && stop() || time.Now().After(deadline) {
			r.ledger.Withdraw(a.Owner)
			return false
		}
		r.ledger.AwaitAnswer(slice)
	}
	return true
}

// waiter is the state of a wait for room.
type waiter struct {
	began    time.Time
	progress time.Time     // when more bytes were free than before, or this process came first in the queue
	quiet    time.Time     // since when all owners answer at once that they can evict nothing
	best     int64         // the most bytes that were free
	after    bool          // another process has waited longer
	passed   map[Ask]bool  // owners that freed nothing in this round, by Owner and Pressing
	late     bool          // one of them did not answer
	pressed  bool          // the latest request was for guaranteed bytes
	wait     time.Duration // for one answer
	others   []Owner
}

func newWaiter() *waiter {
	now := time.Now()
	return &waiter{began: now, progress: now, quiet: now, best: math.MinInt64, passed: map[Ask]bool{}, wait: patience}
}

// behind reports whether a process that has waited longer is to be waited for.
func (w *waiter) behind(f *first, l Ledger) bool {
	w.after = time.Since(w.began) < mostTurns*turn && f.ahead(l)
	if w.after {
		w.progressed()
	}
	return w.after
}

func (w *waiter) progressed() {
	w.progress = time.Now()
	w.quiet = w.progress
}

// next returns the next request, if free of n required bytes are free; or false if there is none in this round.
func (w *waiter) next(l Ledger, n uint64, free int64) (a Ask, ok bool) {
	if free > w.best {
		w.best = free
		w.progressed()
	}
	w.others = l.Others(w.others[:0])
	a, ok = Choose(w.others, uint64(int64(n)-free), func(a Ask) bool {
		return w.passed[Ask{Owner: a.Owner, Pressing: a.Pressing}]
	})
	return a, ok && (!a.Pressing || w.mayPress())
}

// mayPress reports whether guaranteed bytes may be requested: when no owner has others, or when all that have them have
// answered for a while that they can't evict them. An owner that does not answer, since it uses its memory, can take
// nothing from another domain's guarantee.
func (w *waiter) mayPress() bool {
	return len(w.passed) == 0 || w.pressed || time.Since(w.quiet) >= patience
}

// record records a request, how long it took, whether it was answered, and whether it freed bytes. The answer that an owner
// gives after a long time may be to an earlier request, which it has just stopped to wait for.
func (w *waiter) record(a Ask, took time.Duration, answered, freed bool) {
	w.pressed = a.Pressing
	if !a.Pressing && (!answered || took > slice) {
		w.quiet = time.Now()
	}
	if !answered {
		w.late = true
	}
	if !answered || !freed {
		w.passed[Ask{Owner: a.Owner, Pressing: a.Pressing}] = true
	}
}

// again begins the next round, in which an answer may take longer if one was missing.
func (w *waiter) again() {
	if w.late {
		w.wait = min(2*w.wait, maxWait)
	}
	w.late = false
	clear(w.passed)
}

// first is the process that has waited for room the longest, as this process observes it.
type first struct {
	mu       sync.Mutex
	owner    int
	since    int64
	best     int64     // the most bytes that were free meanwhile
	progress time.Time // when it came first, or when more bytes were free than before
}

// ahead reports whether a process has waited longer than this one, and has not stopped.
func (f *first) ahead(l Ledger) bool {
	owner, since, ok := l.Ahead()
	if !ok {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	now, free := time.Now(), l.Free()
	if f.progress.IsZero() || owner != f.owner || since != f.since || free > f.best {
		f.owner, f.since, f.best, f.progress = owner, since, free, now
	}
	return now.Sub(f.progress) < turn
}
