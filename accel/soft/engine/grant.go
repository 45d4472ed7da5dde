package engine

import (
	"sync/atomic"
	"time"
)

// The workers of a domain queue for an engine in a page that only they and the daemon map. The daemon decides which
// domain has the engine: it grants the engine to one domain after another (see Arbiter), in a word of the domain's
// page. So a worker can neither keep the engine from another domain nor take it from one by writing to its page.
//
// A domain that was granted an engine keeps it while no other domain waits for it, so that its workers enter and leave
// with one compare-and-swap. Once another domain waits, the daemon sets a flag in the same word, and the worker that
// leaves gives the engine back, at the latest after quantum.

// quantum is for how long a domain may continue to start short work on a contended engine, in ns.
const quantum = 500_000

// grantWord contains whether an engine is granted to the domain, and the ticket of the latest worker to enter:
// `ticket<<3 | wanted<<2 | mode`.
type grantWord uint64

const (
	absent    grantWord = iota // the domain does not have the engine
	present                    // the domain has it; the ticket's holder uses it if the ticket is still served
	overtaken                  // as absent, but the ticket's holder did not leave in time
	modeMask  grantWord = 3
	wanted    grantWord = 4 // present, and another domain waits
)

// nobody is the ticket of a grant that no worker has used.
const nobody = ticketMask

func granted(ticket uint64) grantWord { return grantWord(ticket&ticketMask)<<3 | present }

func (g grantWord) mode() grantWord { return g & modeMask }
func (g grantWord) ticket() uint64  { return uint64(g >> 3) }
func (g grantWord) wanted() bool    { return g.mode() == present && g&wanted != 0 }

// by returns the word after a ticket's holder has entered.
func (g grantWord) by(ticket uint64) grantWord { return granted(ticket) | g&wanted }

// grant is the state of one engine that domain and daemon share.
type grant struct {
	word     atomic.Uint64 // grantWord
	since    atomic.Int64  // when the engine was granted
	wantedAt atomic.Int64  // when another domain was first observed to wait for it
	want     atomic.Uint32 // 1: a worker waits for a grant; the daemon resets it with the grant
	parked   atomic.Uint32 // futex: 1 while that worker sleeps
	_        [32]byte
}

func (g *grant) load() grantWord { return grantWord(g.word.Load()) }
func (g *grant) change(from, to grantWord) bool {
	return g.word.CompareAndSwap(uint64(from), uint64(to))
}

// expired reports whether no more work may begin on a contended engine.
func (g *grant) expired(now int64) bool { return now-g.wantedAt.Load() >= quantum }

// free reports whether the holder of a ticket could enter at once.
func (g *grant) free() bool { w := g.load(); return w.mode() == present && w&wanted == 0 }

// enter blocks, as the holder of the ticket that is served, until the domain has the engine. It returns false when stop
// was set; the ticket has ended then.
func (w *Worker) enter(k Token, ticket uint64, stop *atomic.Bool) bool {
	g := &w.engines.l.grants[k]
	for {
		now := g.load()
		switch {
		case now.mode() != present:
			if !w.await(k, ticket, stop) {
				return false
			}
		case now.wanted() && now.ticket() != nobody && g.expired(w.clock()):
			if g.change(now, absent) {
				w.ring()
			}
		default:
			if g.change(now, now.by(ticket)) {
				return true
			}
		}
	}
}

// await waits for a grant. While no daemon grants, domains take engines by themselves, as gates are open then.
func (w *Worker) await(k Token, ticket uint64, stop *atomic.Bool) bool {
	g := &w.engines.l.grants[k]
	for g.load().mode() != present {
		if g.want.Load() == 0 { // also if the engine was granted and revoked before this process woke
			g.want.Store(1)
			w.ring()
		}
		if stop != nil && stop.Load() {
			w.abandon(k, ticket)
			return false
		}
		if w.engines.l.tokens[k].serving.Load() != ticket { // lost, as the page was damaged
			return false
		}
		g.parked.Store(1)
		if g.load().mode() == present {
			break
		}
		if !futexWait(&g.parked, slice) {
			continue
		}
		if word, now := g.load(), w.clock(); word.mode() != present && now > w.engines.l.granting.Load() {
			g.want.Store(0)
			g.since.Store(now)
			g.change(word, granted(nobody))
		}
		w.ring() // in case the first ring was missed
	}
	g.parked.Store(0)
	return true
}

const (
	hastenTries = 10
	hastenEvery = 50 * time.Microsecond
)

// hasten requests an engine that no domain uses, and reports whether it was granted soon.
func (w *Worker) hasten(k Token) bool {
	g := &w.engines.l.grants[k]
	if g.load().mode() == present { // another domain waits for it
		return false
	}
	g.want.Store(1)
	w.ring()
	for range hastenTries {
		time.Sleep(hastenEvery)
		if g.free() {
			return true
		}
	}
	return false
}

// ring wakes the daemon after a change in the grants of a page.
func (w *Worker) ring() {
	w.memory.l.bell.Add(1)
	futexWakeAll(&w.memory.l.bell) // a hostile worker may wait on it, too
}

// giveBack gives a contended engine back, after the ticket of the latest worker to enter has ended. It reports whether
// the daemon has to be notified.
func (e *Engines) giveBack(k Token, ticket uint64, now int64) bool {
	g := &e.l.grants[k]
	w := g.load()
	if w.ticket() != ticket&ticketMask || w.mode() == present && !w.wanted() || w.mode() == absent {
		return false
	}
	if w.mode() == present && e.l.tokens[k].taken() && !g.expired(now) {
		return false
	}
	return g.change(w, absent)
}

// entered returns the time from which a served ticket is charged: not before the engine was granted, and not yet if it
// is not.
func (e *Engines) entered(k Token, now int64) int64 {
	g := &e.l.grants[k]
	if g.load().mode() == absent {
		return now
	}
	return min(g.since.Load(), now)
}
