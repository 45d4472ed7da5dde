package policies

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"pegasus/vcpu"
)

// queue is the frame of policies that decide about single requests: one domain at a time is lent a number of
// requests, and the next decision follows when they have ended. Domains belong to units: the domains of a
// group share one unit, each other domain has its own. Three slots complete the policy, evaluated in this
// order: reserves decide which domains may be served at all, share selects the next unit, order selects the
// domain within it.
//
// A domain that is alone on the accelerator has its gate open.
type queue struct {
	name     string
	share    share
	books    books // the share, if it keeps accounts; otherwise nil
	before   order
	reserves reserves
	limits   limits
	domains  roster
	arrivals uint64 // numbers the arrivals of requests
	inLine   int    // tenants with a request
	lease    leaseInForce
	handover handover
	missed   uint64 // requests that ended after they were due
	why      reason
}

// limits are the settings of a queue. They stay the same.
type limits struct {
	strict bool // reserves also limit a domain that is alone, as published
	// longest is the accelerator time that may be used under a lease of several requests; 0: no limit.
	longest time.Duration
	// most is the accelerator time that may be used under a lease while others wait; 0: no limit. A request
	// that is charged while it runs (software accelerator, graphs) continues when its domain is in turn
	// again.
	most time.Duration
	// patience is the time without any completion after which a lease is taken back while others wait; 0: for
	// ever.
	patience time.Duration
	history  int // number of keys in a domain's history
}

// leaseInForce is the lease of a queue that is in force, and its use so far.
type leaseInForce struct {
	holder  *tenant       // nil: no lease is in force
	amount  int           // its requests
	key     uint64        // Key of its only request; 0: several requests, or unknown
	cap     time.Duration // limits.most for this lease, which may be a brief one
	left    int           // requests that have not ended
	between bool          // one of several has ended since the last decision
	spent   time.Duration
	heard   Time // when the lease began, or use under it was last reported
	alone   bool // the holder's gate is open because there is no other domain
}

// handover is the change from one lease of a queue to the next.
type handover struct {
	closing *tenant // its gate has to be closed before another's opens
	chosen  *tenant // tenant that gets the next lease, after that
	last    *tenant // holder of the previous lease
	rested  Time    // when that lease ended
	lapsed  bool    // that lease was not used up: its holder seemed to have no work
	hush    Time    // until then the queue waits for the domain whose lease was taken back
}

// share is the slot of a queue that selects the unit to serve next. The queue reports to it the units with
// waiting requests that their reserves admit, and the time used.
type share interface {
	// enqueue is called when the first request of a unit waits, dequeue when none does any more: the requests were
	// lent, or withdrawn.
	enqueue(now Time, u *unit)
	dequeue(now Time, u *unit)
	// charge adds accelerator time used by a unit. complete is called when the unit's lease has ended, whether or
	// not it was used up.
	charge(now Time, u *unit, d time.Duration)
	complete(now Time, u *unit)
	// pick returns the waiting unit to serve next and the number of requests it may submit; nil: none before
	// wakeAt. The queue calls it when the accelerator is free, and the returned unit gets the lease.
	pick(now Time) (u *unit, requests int, wakeAt Time)
	// unitChanged is called when a unit was added, before any other call for it, and when its credits changed;
	// unitRemoved when it was removed.
	unitChanged(now Time, u *unit)
	unitRemoved(now Time, u *unit)
	// explain returns a short description of a unit's standing.
	explain(u *unit) string
}

// books is a share that keeps accounts (see Ledger).
type books interface {
	balance(u *unit) time.Duration
	// vacated reports that a unit has no domains left, only accounts of absent ones.
	vacated(u *unit)
	// peek returns the unit that is next among the waiting ones, or nil.
	peek() *unit
	// waitsFor returns how long u, which owes time, waits for o, which has had no requests since its lease
	// ended.
	waitsFor(u, o *unit) time.Duration
	restore(now Time, u *unit, balance time.Duration)
	// lasts returns the time that the unit returned by pick may use under its lease while others wait.
	lasts(now Time) time.Duration
	// yields reports whether a lease of several requests ends now that one of them has ended: another unit
	// goes before the holder's next request.
	yields(holder *tenant) bool
}

// A lease may last this long without a sign of progress, plus patienceTimes the expected
// time of its first request (at most mostPatience): its work may depend on its own program, and the other
// domains must not wait for that program.
const (
	patience      = 100 * time.Millisecond
	patienceTimes = 4
	mostPatience  = time.Second
)

func newQueue(name string, o Options, s share, before order) *queue {
	q := &queue{
		name:     name,
		share:    s,
		before:   before,
		reserves: newReserves(o),
		limits:   limits{most: o.Tick, patience: patience, history: historyKeys.of(&o)},
	}
	q.books, _ = s.(books)
	if o.Mode == Paper {
		q.publish()
	}
	q.domains = newRoster(s, q.books, before)
	return q
}

// newCommonQueue returns a queue without shares: all domains belong to one unit.
func newCommonQueue(name string, o Options, run func(*tenant) int, before order) *queue {
	u := newUnit("", before)
	q := newQueue(name, o, &sharedUnit{u, run}, before)
	q.domains.common = u
	return q
}

func (q *queue) Attach(now Time, d Domain) {
	c := q.domains.tenants[d.ID]
	if c == nil {
		c = &tenant{domain: d, due: Forever}
		q.domains.tenants[d.ID] = c
		q.domains.join(now, c)
		q.limit(now, c)
		return
	}
	was := c.domain.Promise
	moves := q.domains.common == nil && was.Group != d.Promise.Group
	if !moves && was.Reserve == d.Promise.Reserve {
		c.domain = d
		c.due = c.deadline()
		if c.waits() {
			c.lane.waiting.fix(c)
			q.reposition(now, c.lane)
		}
		q.domains.weigh(now, c.unit)
		return
	}
	waits := c.waits()
	q.withdraw(now, c)
	q.unlimit(c)
	var debt time.Duration
	if moves {
		if q.books != nil {
			debt = min(q.books.balance(c.unit), 0)
		}
		q.domains.part(now, c)
	}
	c.domain = d
	if moves {
		q.domains.join(now, c)
		if debt < 0 {
			q.domains.restore(now, d.ID, debt)
		}
	} else {
		q.domains.weigh(now, c.unit)
	}
	q.limit(now, c)
	if waits {
		q.line(now, c)
	}
	q.readmit(now)
}

// limit assigns c to the reserve that it was promised, if any.
func (q *queue) limit(now Time, c *tenant) {
	c.lane = q.reserves.join(now, c, q.before)
	if r := c.lane.reserve; q.limits.history == 0 || r == nil || r.kind != vcpu.Apriori {
		c.history = nil
	} else if c.history == nil {
		c.history = NewHistory(q.limits.history, 0)
	}
}

func (q *queue) unlimit(c *tenant) {
	q.reserves.part(c)
	c.lane = nil
}

// readmit admits refused reserves to capacity that has become free since.
func (q *queue) readmit(now Time) {
	for c := q.reserves.fits(); c != nil; c = q.reserves.fits() {
		waits := c.waits()
		q.withdraw(now, c)
		q.unlimit(c)
		q.limit(now, c)
		if waits {
			q.line(now, c)
		}
	}
}

func (q *queue) Detach(now Time, id ID) {
	if q.domains.absent[id] != nil {
		q.domains.close(now, id)
		return
	}
	q.depart(now, q.domains.tenants[id])
}

// Keeps returns true for shares that count time, in production mode.
func (q *queue) Keeps() bool { return q.books != nil }

func (q *queue) Leave(now Time, id ID) {
	c := q.domains.tenants[id]
	q.domains.absent[id] = c.unit
	c.unit.absent++
	q.depart(now, c)
}

func (q *queue) Balance(_ Time, id ID) time.Duration { return q.domains.balance(id) }

func (q *queue) Restore(now Time, id ID, balance time.Duration) { q.domains.restore(now, id, balance) }

// depart removes c from all structures except the accounts.
func (q *queue) depart(now Time, c *tenant) {
	id := c.domain.ID
	c.heads, c.due = [numClasses]Request{}, Forever
	q.withdraw(now, c)
	if q.lease.holder == c {
		q.release(now)
	}
	if q.handover.closing == c {
		q.handover.closing = nil
	}
	if q.handover.last == c {
		q.handover.last = nil
	}
	q.unlimit(c)
	q.domains.part(now, c)
	delete(q.domains.tenants, id)
	q.readmit(now)
}

// Wake ends the lease of a holder that has no work, since the lent request was not submitted. If the request
// does arrive (submitted just before the gate closed) while the accelerator is still free, the domain enters
// the line again.
func (q *queue) Wake(since Time, id ID, s Signal) {
	c := q.domains.tenants[id]
	c.busy = s == Arrived || c.busy && s == ContextOpened
	switch {
	case s == Drained && c == q.lease.holder && !q.lease.alone:
		q.release(since)
		q.handover.lapsed = q.lease.left > 0
	case s == Drained && c.waits() && !c.pending():
		q.withdraw(since, c)
	case s == Arrived && c == q.handover.last && q.handover.lapsed && q.lease.holder == nil && q.handover.chosen == nil && !c.waits():
		q.line(since, c)
	}
}

// Head puts a domain in line, or takes it out. A request that waits at the holder's gate may belong to the
// lease in force; that is settled when the lease ends.
func (q *queue) Head(now Time, id ID, class Class, r Request) {
	c := q.domains.tenants[id]
	if c.history != nil && r.Key != 0 {
		before := q.lease.holder
		if before == nil {
			before = q.handover.last
		}
		r.Predicted, r.Known = c.history.Predict(r.Key, c != before)
	}
	had := c.pending()
	c.heads[class] = r
	if c != q.lease.holder && r.Seq > 0 && r.Seq <= c.lent[class] {
		c.lent[class] = r.Seq - 1 // earlier requests ended under its lease, and this one still waits
	}
	switch {
	case c == q.lease.holder:
		q.number(now, c)
	case !c.pending():
		q.withdraw(now, c)
	case !c.waits():
		q.number(now, c)
		q.line(now, c)
	default:
		if !had {
			q.number(now, c)
		}
		c.due = c.deadline()
		c.lane.waiting.fix(c)
		q.reposition(now, c.lane)
	}
}

// number records the arrival of a request of c.
func (q *queue) number(now Time, c *tenant) {
	q.arrivals++
	c.arrived, c.since = q.arrivals, now
}

// line puts c in line, at the position given by its request's arrival.
func (q *queue) line(now Time, c *tenant) {
	c.lane.settle(now)
	c.due = c.deadline()
	c.lane.waiting.push(c)
	c.unit.waiting++
	q.inLine++
	q.reposition(now, c.lane)
}

// withdraw takes c out of the line.
func (q *queue) withdraw(now Time, c *tenant) {
	if !c.waits() {
		return
	}
	c.lane.settle(now)
	c.lane.waiting.remove(c)
	c.unit.waiting--
	q.inLine--
	q.reposition(now, c.lane)
	if q.handover.chosen == c {
		q.handover.chosen = nil
	}
}

// reposition restores the position of a lane that has changed: the lane is in its unit's line if a request that
// the reserve admits waits in it.
func (q *queue) reposition(now Time, l *lane) {
	u := l.unit
	had := u.line.len() > 0
	switch admitted := l.admitted(now); {
	case admitted && u.line.has(l):
		u.line.fix(l)
	case admitted:
		u.line.push(l)
	case u.line.has(l):
		u.line.remove(l)
	}
	switch has := u.line.len() > 0; {
	case has && !had:
		q.share.enqueue(now, u)
	case had && !has:
		q.share.dequeue(now, u)
	}
	if l.reserve != nil {
		q.reserves.arm(l.reserve)
	}
}

func (q *queue) Charge(now Time, id ID, u Usage) {
	c := q.domains.tenants[id]
	if c == nil {
		q.share.charge(now, q.domains.absent[id], u.Busy())
		return
	}
	if r := c.lane.reserve; r != nil && !q.lease.alone {
		r.debit(now, u.Busy())
		q.replace(now, r)
	}
	q.share.charge(now, c.unit, u.Busy())
	if u.Busy() > 0 || c == q.lease.holder { // of others: the lease's work waits behind theirs
		q.lease.heard = now
	}
	if c != q.lease.holder || q.lease.alone {
		return
	}
	q.lease.left -= u.Requests
	q.lease.spent += u.Busy()
	q.lease.between = q.lease.between || u.Requests > 0
	switch {
	case q.lease.left <= 0:
		q.release(now)
	case q.lease.amount > 1 && q.limits.longest > 0 && q.lease.spent >= q.limits.longest:
		q.takeBack(now)
	case q.limits.most > 0 && q.inLine > 0 && q.lease.spent >= q.lease.cap:
		q.number(now, c) // it goes behind those that came meanwhile
		q.takeBack(now)
	}
}

// replace repositions the lanes of a reserve after its budget changed.
func (q *queue) replace(now Time, r *reserve) {
	for _, l := range r.lanes {
		q.reposition(now, l)
	}
}

// release ends the holder's lease. The holder's gate stays open until the next domain is chosen.
func (q *queue) release(now Time) {
	c := q.lease.holder
	if now > c.due {
		q.missed++
	}
	c.unended += q.lease.spent
	c.ended = q.lease.amount - max(q.lease.left, 0)
	q.learn(c)
	q.lease.holder, q.lease.alone = nil, false
	h := &q.handover
	h.closing, h.last, h.lapsed, h.rested = c, c, false, now
	q.share.complete(now, c.unit)
	if c.ended > 0 {
		c.unended = 0
	}
	if c.pending() {
		q.line(now, c)
	}
}

// learn records the cost of the holder's request in its history, if the request had a lease to itself and
// ended under it.
func (q *queue) learn(c *tenant) {
	if c.history != nil && q.lease.key != 0 && c.ended > 0 && !q.lease.alone {
		c.history.Learn(q.lease.key, c.unended, c != q.handover.last)
	}
	q.lease.key = 0
}

func (q *queue) Pick(now Time) (Decision, bool, Time) {
	q.refill(now)
	if d, ok := q.solitude(now); ok || q.lease.alone {
		return d, ok, Forever
	}
	q.cut(now)
	q.stall(now)
	if q.lease.holder != nil {
		return Decision{}, false, min(q.cutAt(), q.stallAt(), q.usedUpAt(now))
	}
	wakeAt := Forever
	if q.handover.chosen == nil {
		switch c := q.handover.last; {
		case now < q.handover.hush && c != nil && c.busy && !c.waits():
			wakeAt = q.handover.hush
		case now < q.heldUntil():
			wakeAt = q.heldUntil()
		default:
			wakeAt = q.choose(now)
		}
	}
	switch {
	case q.handover.closing != nil && q.handover.closing != q.handover.chosen:
		d := Decision{Revoke, Lease{Domain: q.handover.closing.domain.ID}}
		q.handover.closing = nil
		return d, true, Forever
	case q.handover.chosen != nil:
		return q.lend(now), true, Forever
	}
	return Decision{}, false, min(wakeAt, q.reserves.next())
}

// usedUpAt returns when the holder may have used its limit while others wait. Its use need not be reported
// before then.
func (q *queue) usedUpAt(now Time) Time {
	if q.limits.most == 0 || q.inLine == 0 {
		return Forever
	}
	if q.lease.amount > 1 && q.books != nil && q.books.yields(q.lease.holder) {
		return now.Add(lookEvery) // when a request may have ended
	}
	return max(q.lease.heard.Add(q.lease.cap-q.lease.spent), now.Add(lookEvery))
}

// lookEvery is the poll interval of a lease that may be used up, although reported use does not show it, and of one
// that ends with the request that is executed.
const lookEvery = time.Millisecond

// heldUntil returns until when the accelerator is kept for the last domain served and its expected next request,
// because the waiting domain owes time: pauses between the requests of others do not repay that debt.
func (q *queue) heldUntil() Time {
	if q.books == nil || q.handover.last == nil || q.handover.last.waits() {
		return 0
	}
	next := q.books.peek()
	if next == nil || next == q.handover.last.unit {
		return 0
	}
	return q.handover.rested.Add(q.books.waitsFor(next, q.handover.last.unit))
}

// refill adds to the reserves the budgets that are due.
func (q *queue) refill(now Time) {
	for q.reserves.next() <= now {
		r := q.reserves.timers.top()
		r.settle(now)
		q.replace(now, r)
	}
}

// solitude opens the gate of a domain that is alone, without limit. When another domain attaches, it ends that lease by
// takeBack, which counts a request that still waits at the gate as not lent.
func (q *queue) solitude(now Time) (Decision, bool) {
	only := q.only()
	switch {
	case only != nil && !q.lease.alone:
		q.withdraw(now, only)
		only.due = Forever
		q.lease.holder, q.handover.chosen, q.handover.closing, q.lease.alone = only, nil, nil, true
		q.why = reason{id: only.domain.ID}
		return Decision{Grant, Lease{Domain: only.domain.ID, Until: Forever}}, true
	case only == nil && q.lease.alone:
		q.takeBack(now)
	}
	return Decision{}, false
}

// moment is the longest time from closing a domain's gate to the report of a request that waits there.
// Without this delay another domain would be next, regardless of its debt.
const moment = 200 * time.Microsecond

// only returns the domain that has the accelerator to itself, or nil.
func (q *queue) only() *tenant {
	c := q.domains.only()
	if c != nil && c.lane.reserve != nil && q.limits.strict {
		return nil
	}
	return c
}

// cut ends a lease of several requests when a more urgent domain waits, or when another unit's turn has come.
func (q *queue) cut(now Time) {
	between := q.lease.between
	q.lease.between = false
	if between && q.books != nil && q.lease.holder != nil && q.inLine > 0 && q.books.yields(q.lease.holder) {
		q.takeBack(now)
	}
	if !q.cuttable() {
		return
	}
	if f := q.domains.common.first(); f != nil && urgency(f, q.lease.holder) > 0 {
		q.takeBack(now)
	}
}

// takeBack ends a lease early. Submitted work runs before later submissions; requests that still wait at the
// gate count as not lent.
func (q *queue) takeBack(now Time) {
	c := q.lease.holder
	for i, h := range c.heads {
		if h.Seq > 0 && h.Seq == c.lent[i] {
			c.lent[i]--
		}
	}
	if q.release(now); c.busy && q.limits.patience > 0 {
		q.handover.hush = now.Add(moment)
	}
}

func (q *queue) cuttable() bool {
	return q.domains.common != nil && q.lease.holder != nil && q.lease.amount > 1
}

// cutAt returns when a reserve may admit a domain that cuts the holder's lease.
func (q *queue) cutAt() Time {
	if q.cuttable() {
		return q.reserves.next()
	}
	return Forever
}

// stall takes back a lease under which no request ends. The holder occupied the accelerator all that time and
// is charged for it.
func (q *queue) stall(now Time) {
	if now < q.stallAt() {
		return
	}
	q.share.charge(now, q.lease.holder.unit, now.Sub(q.lease.heard))
	q.takeBack(now)
}

// stallAt returns when the holder's lease is taken back if no use is reported.
func (q *queue) stallAt() Time {
	if q.limits.patience == 0 || q.lease.holder == nil || q.inLine == 0 {
		return Forever
	}
	return q.lease.heard.Add(q.forbearance())
}

// forbearance returns how long others wait for the holder's request.
func (q *queue) forbearance() time.Duration {
	return q.limits.patience + min(patienceTimes*q.why.window, mostPatience)
}

// turn is the total time of the requests that a domain in a unit of several gets at a time, in production
// mode.
const turn = time.Millisecond

// choose evaluates the slots and sets the next domain. Reserves are checked before each request, and so is
// the order of a unit of several domains. But requests that are short compared to the cost of a lease are
// lent several at a time; otherwise the accelerator would be idle for much of the time, and a domain would
// need a long turn to use its part.
func (q *queue) choose(now Time) Time {
	u, n, wakeAt := q.share.pick(now)
	if u == nil {
		return wakeAt
	}
	q.handover.chosen, q.lease.amount = u.first(), n
	switch {
	case q.handover.chosen.lane.reserve != nil, len(u.members) > 1 && q.limits.longest == 0:
		q.lease.amount = 1
	case len(u.members) > 1:
		q.lease.amount = atMost(n, turn, q.handover.chosen.request().Predicted)
	}
	return Forever
}

// lend gives the chosen domain its requests.
func (q *queue) lend(now Time) Decision {
	c := q.handover.chosen
	r := c.request()
	q.why = reason{id: c.domain.ID, window: r.Predicted, rivals: c.unit.waiting - 1}
	if q.lease.key = 0; q.lease.amount == 1 {
		q.lease.key = r.Key
	}
	q.withdraw(now, c)
	l := &q.lease
	l.holder, l.left, l.spent, l.heard, l.between = c, l.amount, 0, now, false
	q.handover.chosen, q.handover.closing = nil, nil
	if q.lease.cap = q.limits.most; q.books != nil {
		q.lease.cap = min(q.lease.cap, q.books.lasts(now))
	}
	for i := range c.heads {
		c.lent[i] = max(c.lent[i], c.heads[i].Seq)
	}
	return Decision{Grant, Lease{Domain: c.domain.ID, Kind: Requests, Amount: int64(q.lease.amount), Until: Forever}}
}

func (q *queue) Explain() string {
	switch {
	case q.lease.holder == nil:
		return q.name + ": " + q.idle()
	case q.lease.alone:
		return fmt.Sprintf("%s: domain %d is alone, its gate stays open", q.name, q.why.id)
	}
	what := "a request"
	if q.lease.amount > 1 {
		what = fmt.Sprintf("up to %d requests, the first", q.lease.amount)
	}
	s := fmt.Sprintf("%s: domain %d has %s of about %v; ", q.name, q.why.id, what, q.why.window.Round(time.Microsecond))
	if standing := q.share.explain(q.lease.holder.unit); standing != "" {
		s += standing + "; "
	}
	s += fmt.Sprintf("others of its unit that wait: %d", q.why.rivals)
	if q.missed > 0 {
		s += fmt.Sprintf("; requests that ended late: %d", q.missed)
	}
	return s
}

// idle returns why no lease is in force.
func (q *queue) idle() string {
	refused := ""
	for _, id := range slices.Sorted(maps.Keys(q.domains.tenants)) {
		if why := q.Refusal(id); why != "" && refused == "" {
			refused = fmt.Sprintf("domain %d waits for its %s", id, why)
		}
	}
	if refused == "" {
		return "no domain has work"
	}
	return refused
}

// Refusal returns the slot that refuses the domain's request, and the reason; "": no request waits.
func (q *queue) Refusal(id ID) string {
	c := q.domains.tenants[id]
	switch {
	case c == q.lease.holder, !c.waits():
		return ""
	case !c.unit.line.has(c.lane):
		return "reserve: " + c.lane.reserve.String()
	case q.lease.holder != nil && q.lease.holder.unit != c.unit:
		return fmt.Sprintf("share: domain %d has the accelerator", q.lease.holder.domain.ID)
	case q.lease.holder != nil:
		return fmt.Sprintf("order: domain %d of its unit is served", q.lease.holder.domain.ID)
	case c.unit.first() != c:
		return fmt.Sprintf("order: domain %d of its unit goes first", c.unit.first().domain.ID)
	}
	return "share: " + q.share.explain(c.unit)
}
