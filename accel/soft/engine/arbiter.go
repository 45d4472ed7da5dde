package engine

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Arbiter is the daemon's side of the grants: it grants each engine of an accelerator to one domain at a time, first come, first
// served, among the domains that have the turn. An Arbiter trusts a domain's page only where a false value harms that domain alone.
type Arbiter struct {
	memory *Memory // the accelerator's page, which contains the bell that workers ring

	mu       sync.Mutex
	all      []*Party
	holders  [NumTokens][]*Party // of each engine; several only where domains took it while no daemon ran
	waiting  [NumTokens][]*Party // in the order in which their requests were observed
	overtook func(*Party, Token)
}

// Party is a domain at an Arbiter.
type Party struct {
	Engines *Engines
	Name    string
	turn    [NumTokens]atomic.Bool // whether it is the domain's turn
	fresh   [NumTokens]atomic.Bool // the turn began just now
	limit   atomic.Int64           // for how long a domain may keep a contended engine during its turn, in ns; 0: without limit

	// Guarded by the arbiter's mu.
	turnOver   [NumTokens]int64 // when it was first observed not to have the turn; 0: it has
	denied     [NumTokens]int64 // since when it keeps a contended engine; 0: it does not
	seen       [NumTokens]int64 // when it was last observed to do so
	waits      [NumTokens]int64 // since when it waits for an engine
	charged    [NumTokens]int64 // the domain's charges up to denied
	late       int64            // when it was last overtaken
	often      int              // how often it was overtaken, each time soon after the time before
	reportedAt int64            // when overtook was last called for it
}

const (
	// grantingFor is for how long, in ns, grants remain valid after the last sign of a running daemon.
	grantingFor = 1e9
	// beatEvery is the longest interval, in ns, between two signs of a running daemon.
	beatEvery = 200e6
	// lookEvery is how often the daemon checks holders that keep other domains waiting.
	lookEvery = 2e6
	// grace is for how long, in ns, a domain may keep a contended engine after its turn: work releases its engine
	// within 2 ms of processor time, for which it may have to wait on a busy host.
	grace = 50e6
	// mostGrace bounds the divisor of the grace of a domain that was overtaken repeatedly, each time within forgiven of
	// the time before.
	mostGrace = 16
	forgiven  = 10e9
	// lendAfter is for how long, in ns, a domain without the turn waits before it gets an engine that is idle during
	// the turn of another domain: for work that must not wait, such as moving memory that the other domain needs.
	lendAfter = 5e6
	// More than rushLooks rings in rushTime (ns) come from a hostile worker: the arbiter then pauses, so as not to
	// occupy a processor.
	rushLooks = 200
	rushTime  = 10e6
	// tolerance is the difference, in ns, by which the charge may be less than the observed time.
	tolerance = 1e6
)

// NewArbiter returns an Arbiter for the domains of an accelerator, with its page. The arbiter calls overtook at a
// limited rate for a domain that does not release an engine; overtook may be nil, and must not call the arbiter.
func NewArbiter(m *Memory, overtook func(*Party, Token)) *Arbiter {
	if overtook == nil {
		overtook = func(*Party, Token) {}
	}
	return &Arbiter{memory: m, overtook: overtook}
}

// Add adds a domain to those that the arbiter grants engines to. The domain holds no engine, except those that its page
// records as granted.
func (a *Arbiter) Add(e *Engines, name string) *Party {
	a.mu.Lock()
	defer a.mu.Unlock()
	d := &Party{Engines: e, Name: name}
	now := Now()
	for k := range NumTokens {
		g := &e.l.grants[k]
		if w := g.load(); w.mode() == present && e.l.granting.Load() == 0 {
			g.word.Store(uint64(absent)) // a new page, which no process uses yet
		} else if w.mode() == present {
			a.holders[k] = append(a.holders[k], d)
		}
	}
	e.l.granting.Store(now + grantingFor)
	a.all = append(a.all, d)
	a.Ring()
	return d
}

// Remove removes a domain that has no workers left.
func (a *Arbiter) Remove(d *Party) {
	a.mu.Lock()
	defer a.mu.Unlock()
	without := func(all []*Party) []*Party {
		return slices.DeleteFunc(all, func(other *Party) bool { return other == d })
	}
	a.all = without(a.all)
	for k := range NumTokens {
		a.holders[k], a.waiting[k] = without(a.holders[k]), without(a.waiting[k])
	}
	a.Ring()
}

// SetTurn sets for which engines it is the domain's turn.
func (a *Arbiter) SetTurn(d *Party, compute, copies bool) {
	changed := false
	for k, turn := range [NumTokens]bool{Compute: compute, CopyIn: copies, CopyOut: copies} {
		if d.turn[k].Swap(turn) != turn {
			d.fresh[k].Store(turn)
			changed = true
		}
	}
	if changed {
		a.Ring()
	}
}

// SetLimit sets for how long a domain may keep a contended engine during its turn, in ns; 0: without limit.
func (d *Party) SetLimit(ns int64) { d.limit.Store(ns) }

// Ring wakes the arbiter.
func (a *Arbiter) Ring() {
	a.memory.l.bell.Add(1)
	futexWakeAll(&a.memory.l.bell)
}

// Run grants engines until ctx ends.
func (a *Arbiter) Run(ctx context.Context) {
	rang := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { defer close(rang); a.Ring() })
	defer func() {
		if !stop() {
			<-rang // the page is unmapped later
		}
	}()
	var since int64
	looks := 0
	for ctx.Err() == nil {
		rung := a.memory.l.bell.Load()
		now := Now()
		if looks++; now-since > rushTime {
			since, looks = now, 0
		} else if looks > rushLooks {
			time.Sleep(time.Millisecond)
		}
		if wait := a.step(now); ctx.Err() == nil {
			futexWaitAt(&a.memory.l.bell, rung, wait)
		}
	}
}

// step grants and revokes as of now, and returns the time in ns after which it must run again if the bell does not
// ring.
func (a *Arbiter) step(now int64) (wait int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	wait = beatEvery
	if len(a.all) == 0 {
		wait = 1<<63 - 1
	}
	for _, d := range a.all {
		d.Engines.l.granting.Store(now + grantingFor)
	}
	for k := range NumTokens {
		a.holders[k] = slices.DeleteFunc(a.holders[k], func(d *Party) bool { return d.gave(k) })
		for i := range a.all {
			a.all[i].reclaim(k, slices.Contains(a.holders[k], a.all[i]))
			a.queue(k, a.all[i], now)
		}
		next := a.next(k)
		if next == nil {
			next = a.ahead(k)
		}
		contended := next != nil || len(a.holders[k]) > 1
		a.holders[k] = slices.DeleteFunc(a.holders[k], func(d *Party) bool {
			if contended {
				return a.take(k, d, now)
			}
			d.keep(k)
			return len(a.waiting[k]) > 0 && (!d.turn[k].Load() || now-a.waiting[k][0].waits[k] >= lendAfter) && a.takeIdle(k, d)
		})
		if len(a.holders[k]) == 0 && (next != nil || len(a.waiting[k]) > 0) {
			if next == nil { // no waiting domain has the turn: the work was admitted before its domain's turn ended
				next = a.waiting[k][0]
			}
			a.grant(k, next, now)
		}
		if len(a.waiting[k]) > 0 {
			wait = lookEvery
		}
	}
	if len(a.all) > 1 { // another domain is checked first the next time
		a.all = append(a.all[1:], a.all[0])
	}
	return wait
}

// reclaim revokes an engine that a domain took while the daemon had not shown that it runs.
func (d *Party) reclaim(k Token, holds bool) {
	g := &d.Engines.l.grants[k]
	if w := g.load(); !holds && w.mode() == present {
		to := absent
		if d.uses(k, w) {
			to = overtaken | w&^(wanted|modeMask)
		}
		g.change(w, to)
	}
}

// queue enqueues a domain for an engine that it has requested.
func (a *Arbiter) queue(k Token, d *Party, now int64) {
	if d.Engines.l.grants[k].want.Load() != 0 && !slices.Contains(a.waiting[k], d) && !slices.Contains(a.holders[k], d) {
		a.waiting[k] = append(a.waiting[k], d)
		d.waits[k] = now
	}
}

// next returns the first waiting domain that has the turn, or nil.
func (a *Arbiter) next(k Token) *Party {
	for _, d := range a.waiting[k] {
		if d.turn[k].Load() {
			return d
		}
	}
	return nil
}

// ahead returns the only domain that has the turn, if the turn began just now and the domain has used the engine
// before: so the engine is granted by the time that its worker is awake.
func (a *Arbiter) ahead(k Token) (next *Party) {
	for _, d := range a.all {
		if !d.turn[k].Load() {
			continue
		}
		if next != nil {
			return nil
		}
		next = d
	}
	if next == nil || !next.fresh[k].Load() || next.Engines.l.tokens[k].serving.Load() == 0 || slices.Contains(a.holders[k], next) {
		return nil
	}
	return next
}

func (a *Arbiter) grant(k Token, d *Party, now int64) {
	d.fresh[k].Store(false)
	a.waiting[k] = slices.DeleteFunc(a.waiting[k], func(other *Party) bool { return other == d })
	a.holders[k] = append(a.holders[k], d)
	d.denied[k] = 0
	g := &d.Engines.l.grants[k]
	to := granted(nobody)
	if w := g.load(); w.mode() == overtaken && w.ticket() == d.Engines.l.tokens[k].serving.Load()&ticketMask {
		to = granted(w.ticket()) // its holder never left
	} else {
		g.since.Store(now)
	}
	g.want.Store(0)
	g.word.Store(uint64(to))
	wakeParked(&g.parked)
}

// gave reports whether the domain has given an engine back.
func (d *Party) gave(k Token) bool {
	if d.Engines.l.grants[k].load().mode() == present {
		return false
	}
	d.settle(k)
	return true
}

// take revokes an engine that its domain doesn't use, or marks in the grant that another domain waits. It reports
// whether the domain has lost the engine.
func (a *Arbiter) take(k Token, d *Party, now int64) bool {
	g := &d.Engines.l.grants[k]
	if d.denied[k] == 0 {
		d.denied[k], d.seen[k], d.charged[k] = now, now, d.Engines.heldUpTo(k, now)
	}
	w := g.load()
	switch {
	case w.mode() != present:
		d.settle(k)
		return true
	case a.takeIdle(k, d):
		return true
	case !w.wanted():
		g.wantedAt.Store(d.denied[k])
		g.change(w, w|wanted)
		if a.takeIdle(k, d) { // its user may have left before it could observe the mark
			return true
		}
	case now-d.denied[k] >= d.idleFor(k, w, now) && !d.uses(k, w) && g.change(w, absent): // the next worker in its queue does not come
		if !d.turn[k].Load() && w.ticket() == nobody {
			d.belated(now)
		}
		d.settle(k)
		return true
	case now-d.denied[k] >= d.patience(k, now) && g.change(w, overtaken|w&^(wanted|modeMask)):
		d.seen[k] = now
		d.settle(k)
		d.belated(now)
		if now-d.reportedAt > forgiven || d.reportedAt == 0 {
			d.reportedAt = now
			a.overtook(d, k)
		}
		return true
	}
	d.seen[k] = now
	return false
}

// idleFor returns for how long a domain may keep a contended engine that none of its workers has entered, in ns: a
// worker has to wake up to use a new grant.
func (d *Party) idleFor(k Token, w grantWord, now int64) int64 {
	if w.ticket() != nobody {
		return quantum
	}
	if d.turn[k].Load() {
		return grace
	}
	return d.grace(now)
}

// belated records that a domain without the turn kept an engine for the whole of its grace.
func (d *Party) belated(now int64) {
	if d.often++; now-d.late > forgiven {
		d.often = 1
	}
	d.late = now
}

// grace returns for how long a domain without the turn may keep a contended engine, in ns.
func (d *Party) grace(now int64) int64 {
	if d.often > 0 && now-d.late < forgiven {
		return grace / int64(min(1<<min(d.often, 10), mostGrace))
	}
	return grace
}

// takeIdle revokes an engine that no worker of the domain uses or waits for.
func (a *Arbiter) takeIdle(k Token, d *Party) bool {
	g := &d.Engines.l.grants[k]
	w := g.load()
	if w.mode() != present || d.uses(k, w) || d.Engines.l.tokens[k].taken() || !g.change(w, absent) {
		return false
	}
	d.settle(k)
	return true
}

// uses reports whether the latest worker to enter an engine has not left.
func (d *Party) uses(k Token, w grantWord) bool {
	return w.ticket() == d.Engines.l.tokens[k].serving.Load()&ticketMask
}

// keep clears that mark of a grant once no other domain waits for the engine.
func (d *Party) keep(k Token) {
	if d.denied[k] == 0 {
		return
	}
	d.settle(k)
	g := &d.Engines.l.grants[k]
	if w := g.load(); w.wanted() {
		g.change(w, w&^wanted)
	}
}

// patience returns for how long a domain may keep a contended engine, in ns.
func (d *Party) patience(k Token, now int64) int64 {
	if d.turn[k].Load() {
		d.turnOver[k] = 0
		if limit := d.limit.Load(); limit > 0 {
			return limit
		}
		return 1<<63 - 1
	}
	if d.turnOver[k] == 0 {
		d.turnOver[k] = now
	}
	return d.grace(now) + max(d.turnOver[k]-d.denied[k], 0)
}

// settle charges a domain for the time during which it was observed to keep an engine from others, if its page records
// less.
func (d *Party) settle(k Token) {
	if d.denied[k] == 0 {
		return
	}
	seen := d.seen[k] - d.denied[k]
	said := d.Engines.heldUpTo(k, d.seen[k]) - d.charged[k]
	if missing := seen - said; missing > tolerance+seen/16 {
		d.Engines.extra[k].Add(missing)
	}
	d.denied[k] = 0
}
