package engine

import (
	"sync/atomic"
	"time"
)

// slice is how long a waiter sleeps, in ns, before it checks whether the holder still lives.
const slice = 50e6

// spinTurns bounds how often a waiter polls before it sleeps, if it may spin at all.
const spinTurns = 2000

// Worker is this process's place in the page of its domain, where it queues for the engines, and in the page of the
// accelerator, which counts each worker's memory. A token is acquired and released by one goroutine at a time;
// different tokens may be used at the same time.
type Worker struct {
	engines *Engines
	place   // in the domain's page
	memory  *Memory
	at      place // in the accelerator's page
	clock   func() int64
	ticket  [NumTokens]uint64
	tells   bool // announces that a kernel of its own is running
}

// Register takes a place for this process in the page of an accelerator and in that of its domain there. clock reads
// CLOCK_MONOTONIC in nanoseconds; nil means Now.
func (m *Memory) Register(e *Engines, clock func() int64) (*Worker, error) {
	w, err := queueIn(e, m, clock)
	if err != nil {
		return nil, err
	}
	if w.at, err = m.take(func(at place) { m.l.workers[at.index].start(at.epoch) }); err != nil {
		e.leave(w.place)
		return nil, err
	}
	return w, nil
}

// queueIn registers this process in the page of a domain only.
func queueIn(e *Engines, m *Memory, clock func() int64) (w *Worker, err error) {
	if clock == nil {
		clock = Now
	}
	w = &Worker{engines: e, memory: m, clock: clock}
	w.place, err = e.take(func(at place) {
		for k := range NumTokens {
			e.l.users[at.index].executes[k].Store(0)
		}
		e.l.users[at.index].polls.Store(0)
	})
	return w, err
}

// Close releases the places with all reserved memory. No token may be held.
func (w *Worker) Close() {
	w.engines.leave(w.place)
	w.memory.leave(w.at)
}

// Memory returns the accelerator's page.
func (w *Worker) Memory() *Memory { return w.memory }

// user returns the worker's place in the page of its domain.
func (w *Worker) user() *user { return &w.engines.l.users[w.index] }

// Acquire blocks until the worker has a token and returns the time since when: now, or the time at which the previous
// holder released it, which this process may have noticed later. It returns false when stop is set (Nudge makes it
// check stop at once), or when the page is damaged and the daemon has not mended it in damageTime. A ticket that was
// lost with the damage is claimed again.
func (w *Worker) Acquire(k Token, stop *atomic.Bool) (since int64, ok bool) {
	t := &w.engines.l.tokens[k]
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
		time.Sleep(time.Millisecond) // never while the page is intact
		w.engines.recover(k, w.clock())
	}
}

// damageTime is for how long a worker claims tickets of a damaged page again, in ns.
const damageTime = 1e9

// TryAcquire acquires a token that no worker holds or waits for. If no worker of the domain has the engine, it waits
// briefly for the grant.
func (w *Worker) TryAcquire(k Token) (since int64, ok bool) {
	t := &w.engines.l.tokens[k]
	g := &w.engines.l.grants[k]
	if t.taken() || !g.free() && !w.hasten(k) {
		return 0, false
	}
	now := w.ask(k)
	n, ok := t.claim(w.index, w.epoch, true)
	if !ok {
		return 0, false
	}
	if word := g.load(); word.mode() != present || !g.change(word, word.by(n)) { // the daemon took it just now
		w.engines.end(k, n, now)
		return 0, false
	}
	w.ticket[k] = n
	return w.got(k, n, now), true
}

// ask records when the worker requests a token: a process that ends the ticket reads it.
func (w *Worker) ask(k Token) int64 {
	now := w.clock()
	s := w.user()
	s.wants[k].Store(now)
	if s.owner.Load() != w.me { // the slot is this process's as long as it has the lock: another process has overwritten it
		s.owner.Store(w.me)
	}
	return now
}

// got returns since when ticket n, which was requested at the time `asked`, is served.
func (w *Worker) got(k Token, n uint64, asked int64) int64 {
	return max(w.engines.l.tokens[k].slot(n-1).end.Load(), asked, w.engines.l.grants[k].since.Load())
}

// Release passes a token on and returns the time.
func (w *Worker) Release(k Token) int64 { return w.ReleaseAt(k, w.clock()) }

// ReleaseAt passes a token on and counts it as held until end, which is not in the future. It returns that time, or a
// later one if the token was acquired after it: a token counts as held for a nanosecond at least.
func (w *Worker) ReleaseAt(k Token, end int64) int64 {
	n := w.ticket[k]
	if k == Compute && w.tells {
		w.tells = false
		w.memory.l.computing.Store(0)
	}
	if w.engines.end(k, n, end) {
		w.ring()
	}
	return w.engines.l.tokens[k].slot(n).end.Load()
}

// Awaited reports whether another worker, of this domain or another, waits for an engine that this worker holds.
func (w *Worker) Awaited(k Token) bool {
	t := &w.engines.l.tokens[k]
	return t.tail.Load()-t.serving.Load() > 1 || w.engines.l.grants[k].load().wanted()
}

// wait returns true when ticket n is served, false when it was given up because stop was set, or lost because the page
// is damaged.
func (w *Worker) wait(k Token, n uint64, stop *atomic.Bool) bool {
	t := &w.engines.l.tokens[k]
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
			w.engines.recover(k, w.clock())
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
	t := &w.engines.l.tokens[k]
	if other := t.serving.Load(); other != n && t.slot(other).word.Load() == claimWord(other, w.index, w.epoch) {
		w.engines.end(k, other, w.clock())
	}
}

// abandon marks ticket n so that it is skipped, and skips it if its turn has come meanwhile.
func (w *Worker) abandon(k Token, n uint64) {
	t := &w.engines.l.tokens[k]
	s := t.slot(n)
	s.parked.Store(0)
	word := claimWord(n, w.index, w.epoch)
	s.word.CompareAndSwap(word, word|abandoned)
	if t.serving.Load() == n && w.engines.end(k, n, w.clock()) {
		w.ring()
	}
}

// Nudge makes a sleeping Acquire of this worker check its stop flag.
func (w *Worker) Nudge(k Token) {
	t := &w.engines.l.tokens[k]
	for n, tail := t.serving.Load(), t.tail.Load(); n < tail && tail-n <= slotsPerToken; n++ {
		if s := t.slot(n); s.word.Load() == claimWord(n, w.index, w.epoch) {
			s.wake()
			wakeParked(&w.engines.l.grants[k].parked)
		}
	}
}

// Saturated reports whether a kernel occupies every core: a poller should block at once instead of spinning.
func (w *Worker) Saturated() bool {
	if w.memory.fixed.allCores == 0 {
		return false
	}
	if w.engines.l.tokens[Compute].taken() {
		return true
	}
	at := w.memory.l.computing.Load() // of another domain
	return at != 0 && w.clock()-at < computingFor
}

// computingFor is for how long, in ns, a kernel counts as running after its last sign.
const computingFor = 10e6

// Computes announces to other domains, called at intervals, that a kernel of this worker is still running.
func (w *Worker) Computes(now int64) {
	w.tells = true
	w.memory.l.computing.Store(now)
}

// Charge adds time of an engine that is held without its token.
func (w *Worker) Charge(k Token, ns int64) { w.engines.l.added[k].Add(ns) }

// Polls records how many words in memory this worker polls. It returns the words that all workers of the domain poll,
// and the number of these workers.
func (w *Worker) Polls(n int) (words, workers int) {
	w.user().polls.Store(int64(n))
	for i := range w.engines.used() {
		if u := &w.engines.l.users[i]; ownerPid(u.owner.Load()) != 0 {
			if n := min(u.polls.Load(), maxPolls); n > 0 {
				words, workers = words+int(n), workers+1
			}
		}
	}
	return words, workers
}

// maxPolls bounds the words that a worker reports: other workers of its domain wait longer for each.
const maxPolls = 1 << 20

// Executes records since when an engine that is held without its token has been executing uncharged work of this
// worker; 0: none. If the worker dies, it is charged from then on until it is reaped.
func (w *Worker) Executes(k Token, since int64) { w.user().executes[k].Store(since) }
