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
	before   order
	reserves reserves
	strict   bool // reserves also limit a domain that is alone
	// longest is the accelerator time that may be used under a lease of several requests; 0: no limit.
	longest time.Duration

	// most is the accelerator time that may be used under a lease while others wait; 0: no limit. A request
	// that is charged while it runs (software accelerator, graphs) continues when its domain is in turn
	// again.
	most time.Duration
	cap  time.Duration // most for the lease in force, which may be a brief one
	// patience is the time without any completion after which a lease is taken back while others wait; 0: for
	// ever.
	patience time.Duration

	tenants  map[ID]*tenant
	groups   map[string]*unit
	books    books        // the share, if it keeps accounts; otherwise nil
	absent   map[ID]*unit // units that hold the accounts of domains that have left
	common   *unit        // the unit of all domains, for a queue without shares; otherwise nil
	arrivals uint64       // numbers the arrivals of requests
	inLine   int          // tenants with a request

	holder  *tenant // tenant whose lease is in force
	amount  int     // requests in that lease
	key     uint64  // Key of its only request; 0: several requests, or unknown
	left    int     // requests of the lease that have not ended
	between bool    // one of several has ended since the last decision
	spent   time.Duration
	heard   Time    // when the lease began, or use under it was last reported
	hush    Time    // until then the queue waits for the domain whose lease was taken back
	alone   bool    // the holder's gate is open because there is no other domain
	closing *tenant // its gate has to be closed before another's opens
	chosen  *tenant // tenant that gets the next lease, after that
	last    *tenant // holder of the previous lease
	rested  Time    // when that lease ended
	lapsed  bool    // that lease was not used up: its holder seemed to have no work
	history int     // number of keys in a domain's history
	missed  uint64  // requests that ended after they were due
	why     reason
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

// In production mode a lease may last this long without a sign of progress, plus patienceTimes the expected
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
		strict:   o.Mode == Paper,
		history:  historyKeys.of(&o),
		tenants:  make(map[ID]*tenant),
		groups:   make(map[string]*unit),
		absent:   make(map[ID]*unit),
	}
	if o.Mode == Production {
		q.patience, q.most = patience, o.Tick
		q.books, _ = s.(books)
	}
	return q
}

// newCommonQueue returns a queue without shares: all domains belong to one unit.
func newCommonQueue(name string, o Options, run func(*tenant) int, before order) *queue {
	u := newUnit("", before)
	q := newQueue(name, o, &sharedUnit{u, run}, before)
	q.common = u
	return q
}

func (q *queue) Attach(now Time, d Domain) {
	c := q.tenants[d.ID]
	if c == nil {
		c = &tenant{domain: d, due: Forever}
		q.tenants[d.ID] = c
		q.join(now, c)
		q.limit(now, c)
		return
	}
	was := c.domain.Promise
	moves := q.common == nil && was.Group != d.Promise.Group
	if !moves && was.Reserve == d.Promise.Reserve {
		c.domain = d
		c.due = c.deadline()
		if c.waits() {
			c.lane.waiting.fix(c)
			q.reposition(now, c.lane)
		}
		q.weigh(now, c.unit)
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
		q.part(now, c)
	}
	c.domain = d
	if moves {
		q.join(now, c)
		if debt < 0 {
			q.Restore(now, d.ID, debt)
		}
	} else {
		q.weigh(now, c.unit)
	}
	q.limit(now, c)
	if waits {
		q.line(now, c)
	}
	q.readmit(now)
}

// join adds c to its unit.
func (q *queue) join(now Time, c *tenant) {
	if c.unit = q.common; c.unit != nil {
		return
	}
	group := c.domain.Promise.Group
	was := q.absent[c.domain.ID]
	u := q.groups[group]
	switch {
	case was != nil && was.name == group:
		u = was
	case u == nil || group == "":
		u = newUnit(group, q.before)
		if u.name != "" {
			q.groups[u.name] = u
		}
	}
	c.unit = u
	u.members = append(u.members, c)
	q.weigh(now, u)
	if was == nil {
		return
	}
	if u != was { // c is of another group now
		q.Restore(now, c.domain.ID, q.books.balance(was))
	}
	q.close(now, c.domain.ID)
}

// close ends the account of an absent domain.
func (q *queue) close(now Time, id ID) {
	u := q.absent[id]
	delete(q.absent, id)
	u.absent--
	q.dissolve(now, u)
}

// dissolve removes a unit that has neither members nor accounts of absent ones.
func (q *queue) dissolve(now Time, u *unit) {
	if len(u.members) > 0 || u.absent > 0 {
		return
	}
	if u.name != "" {
		delete(q.groups, u.name)
	}
	q.share.unitRemoved(now, u)
}

// weigh recomputes the entitlement of a unit from its members.
func (q *queue) weigh(now Time, u *unit) {
	if u == q.common {
		return
	}
	u.credits, u.bw, u.id = 0, 0, u.members[0].domain.ID
	for _, c := range u.members {
		u.credits += int64(c.domain.Credits.OrDefault())
		u.bw += int64(max(c.domain.Promise.Bandwidth, 0))
		u.id = min(u.id, c.domain.ID)
	}
	q.share.unitChanged(now, u)
}

// part removes c from its unit.
func (q *queue) part(now Time, c *tenant) {
	u := c.unit
	if u == q.common {
		return
	}
	u.members = slices.DeleteFunc(u.members, func(o *tenant) bool { return o == c })
	switch {
	case len(u.members) > 0:
		q.weigh(now, u)
	case u.absent > 0:
		q.books.vacated(u)
	}
	q.dissolve(now, u)
}

// limit assigns c to the reserve that it was promised, if any.
func (q *queue) limit(now Time, c *tenant) {
	c.lane = q.reserves.join(now, c, q.before)
	if r := c.lane.reserve; q.history == 0 || r == nil || r.kind != vcpu.Apriori {
		c.history = nil
	} else if c.history == nil {
		c.history = NewHistory(q.history, 0)
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
	if q.absent[id] != nil {
		q.close(now, id)
		return
	}
	q.depart(now, q.tenants[id])
}

// Keeps returns true for shares that count time, in production mode.
func (q *queue) Keeps() bool { return q.books != nil }

func (q *queue) Leave(now Time, id ID) {
	c := q.tenants[id]
	q.absent[id] = c.unit
	c.unit.absent++
	q.depart(now, c)
}

// Balance returns the balance of the domain's unit.
func (q *queue) Balance(_ Time, id ID) time.Duration {
	if c := q.tenants[id]; c != nil {
		return q.books.balance(c.unit)
	}
	return q.books.balance(q.absent[id])
}

// Restore sets the balance of the domain's unit. A unit of several domains keeps its own balance if that is
// the lower one.
func (q *queue) Restore(now Time, id ID, balance time.Duration) {
	u := q.tenants[id].unit
	if len(u.members)+u.absent > 1 {
		balance = min(balance, q.books.balance(u))
	}
	q.books.restore(now, u, balance)
}

// depart removes c from all structures except the accounts.
func (q *queue) depart(now Time, c *tenant) {
	id := c.domain.ID
	c.heads, c.due = [numClasses]Request{}, Forever
	q.withdraw(now, c)
	if q.holder == c {
		q.release(now)
	}
	if q.closing == c {
		q.closing = nil
	}
	if q.last == c {
		q.last = nil
	}
	q.unlimit(c)
	q.part(now, c)
	delete(q.tenants, id)
	q.readmit(now)
}

// Wake ends the lease of a holder that has no work, since the lent request was not submitted. If the request
// does arrive (submitted just before the gate closed) while the accelerator is still free, the domain enters
// the line again.
func (q *queue) Wake(since Time, id ID, s Signal) {
	c := q.tenants[id]
	c.busy = s == Arrived || c.busy && s == ContextOpened
	switch {
	case s == Drained && c == q.holder && !q.alone:
		q.release(since)
		q.lapsed = q.left > 0
	case s == Drained && c.waits() && !c.pending():
		q.withdraw(since, c)
	case s == Arrived && c == q.last && q.lapsed && q.holder == nil && q.chosen == nil && !c.waits():
		q.line(since, c)
	}
}

// Head puts a domain in line, or takes it out. A request that waits at the holder's gate may belong to the
// lease in force; that is settled when the lease ends.
func (q *queue) Head(now Time, id ID, class Class, r Request) {
	c := q.tenants[id]
	if c.history != nil && r.Key != 0 {
		before := q.holder
		if before == nil {
			before = q.last
		}
		r.Predicted, r.Known = c.history.Predict(r.Key, c != before)
	}
	had := c.pending()
	c.heads[class] = r
	if c != q.holder && r.Seq > 0 && r.Seq <= c.lent[class] {
		c.lent[class] = r.Seq - 1 // earlier requests ended under its lease, and this one still waits
	}
	switch {
	case c == q.holder:
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
	if q.chosen == c {
		q.chosen = nil
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
	c := q.tenants[id]
	if c == nil {
		q.share.charge(now, q.absent[id], u.Busy())
		return
	}
	if r := c.lane.reserve; r != nil && !q.alone {
		r.debit(now, u.Busy())
		q.replace(now, r)
	}
	q.share.charge(now, c.unit, u.Busy())
	if u.Busy() > 0 || c == q.holder { // of others: the lease's work waits behind theirs
		q.heard = now
	}
	if c != q.holder || q.alone {
		return
	}
	q.left -= u.Requests
	q.spent += u.Busy()
	q.between = q.between || u.Requests > 0
	switch {
	case q.left <= 0:
		q.release(now)
	case q.amount > 1 && q.longest > 0 && q.spent >= q.longest:
		q.takeBack(now)
	case q.most > 0 && q.inLine > 0 && q.spent >= q.cap:
		q.number(now, c) // it goes behind those that came meanwhile
		q.takeBack(now)
	}
}

// replace repositions the lanes of a reserve whose budget changed.
func (q *queue) replace(now Time, r *reserve) {
	for _, l := range r.lanes {
		q.reposition(now, l)
	}
}

// release ends the holder's lease. The holder's gate stays open until the next domain is chosen.
func (q *queue) release(now Time) {
	c := q.holder
	if now > c.due {
		q.missed++
	}
	c.unended += q.spent
	c.ended = q.amount - max(q.left, 0)
	q.learn(c)
	q.holder, q.closing, q.alone, q.last, q.lapsed, q.rested = nil, c, false, c, false, now
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
	if c.history != nil && q.key != 0 && c.ended > 0 && !q.alone {
		c.history.Learn(q.key, c.unended, c != q.last)
	}
	q.key = 0
}

func (q *queue) Pick(now Time) (Decision, bool, Time) {
	q.refill(now)
	if d, ok := q.solitude(now); ok || q.alone {
		return d, ok, Forever
	}
	q.cut(now)
	q.stall(now)
	if q.holder != nil {
		return Decision{}, false, min(q.cutAt(), q.stallAt(), q.usedUpAt(now))
	}
	wakeAt := Forever
	if q.chosen == nil {
		switch c := q.last; {
		case now < q.hush && c != nil && c.busy && !c.waits():
			wakeAt = q.hush
		case now < q.heldUntil():
			wakeAt = q.heldUntil()
		default:
			wakeAt = q.choose(now)
		}
	}
	switch {
	case q.closing != nil && q.closing != q.chosen:
		d := Decision{Revoke, Lease{Domain: q.closing.domain.ID}}
		q.closing = nil
		return d, true, Forever
	case q.chosen != nil:
		return q.lend(now), true, Forever
	}
	return Decision{}, false, min(wakeAt, q.reserves.next())
}

// usedUpAt returns when the holder may have used its limit while others wait. Its use need not be reported
// before then.
func (q *queue) usedUpAt(now Time) Time {
	if q.most == 0 || q.inLine == 0 {
		return Forever
	}
	if q.amount > 1 && q.books != nil && q.books.yields(q.holder) {
		return now.Add(lookEvery) // when a request may have ended
	}
	return max(q.heard.Add(q.cap-q.spent), now.Add(lookEvery))
}

// lookEvery is the poll interval of a lease that may be used up, although reported use does not show it, and of one
// that ends with the request that is executed.
const lookEvery = time.Millisecond

// heldUntil returns until when the accelerator is kept for the last domain served, whose next request is
// expected, because the waiting domain owes time: pauses between the requests of others do not repay that
// debt.
func (q *queue) heldUntil() Time {
	if q.books == nil || q.last == nil || q.last.waits() {
		return 0
	}
	next := q.books.peek()
	if next == nil || next == q.last.unit {
		return 0
	}
	return q.rested.Add(q.books.waitsFor(next, q.last.unit))
}

// refill adds to the reserves the budgets that are due.
func (q *queue) refill(now Time) {
	for q.reserves.next() <= now {
		r := q.reserves.timers.top()
		r.settle(now)
		q.replace(now, r)
	}
}

// solitude opens the gate of the only domain. When another domain attaches it takes the lease back, because a
// request lent before may still wait.
func (q *queue) solitude(now Time) (Decision, bool) {
	only := q.only()
	switch {
	case only != nil && !q.alone:
		q.withdraw(now, only)
		only.due = Forever
		q.holder, q.chosen, q.closing, q.alone = only, nil, nil, true
		q.why = reason{id: only.domain.ID}
		return Decision{Grant, Lease{Domain: only.domain.ID, Until: Forever}}, true
	case only == nil && q.alone:
		q.takeBack(now)
	}
	return Decision{}, false
}

// moment is the longest time from closing a domain's gate to the report of a request that waits there.
// Without this delay another domain would be next, regardless of its debt.
const moment = 200 * time.Microsecond

// only returns the domain that has the accelerator to itself, or nil.
func (q *queue) only() *tenant {
	if len(q.tenants) != 1 {
		return nil
	}
	for _, c := range q.tenants {
		if c.lane.reserve == nil || !q.strict {
			return c
		}
	}
	return nil
}

// cut ends a lease of several requests when a more urgent domain waits, or when another unit's turn has come.
func (q *queue) cut(now Time) {
	between := q.between
	q.between = false
	if between && q.books != nil && q.holder != nil && q.inLine > 0 && q.books.yields(q.holder) {
		q.takeBack(now)
	}
	if !q.cuttable() {
		return
	}
	if f := q.common.first(); f != nil && urgency(f, q.holder) > 0 {
		q.takeBack(now)
	}
}

// takeBack ends a lease early. Submitted work runs before later submissions; requests that still wait at the
// gate count as not lent.
func (q *queue) takeBack(now Time) {
	c := q.holder
	for i, h := range c.heads {
		if h.Seq > 0 && h.Seq == c.lent[i] {
			c.lent[i]--
		}
	}
	if q.release(now); c.busy && q.patience > 0 {
		q.hush = now.Add(moment)
	}
}

func (q *queue) cuttable() bool { return q.common != nil && q.holder != nil && q.amount > 1 }

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
	q.share.charge(now, q.holder.unit, now.Sub(q.heard))
	q.takeBack(now)
}

// stallAt returns when the holder's lease is taken back if no use is reported.
func (q *queue) stallAt() Time {
	if q.patience == 0 || q.holder == nil || q.inLine == 0 {
		return Forever
	}
	return q.heard.Add(q.forbearance())
}

// forbearance returns how long others wait for the holder's request.
func (q *queue) forbearance() time.Duration {
	return q.patience + min(patienceTimes*q.why.window, mostPatience)
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
	q.chosen, q.amount = u.first(), n
	switch {
	case q.chosen.lane.reserve != nil, len(u.members) > 1 && q.longest == 0:
		q.amount = 1
	case len(u.members) > 1:
		q.amount = atMost(n, turn, q.chosen.request().Predicted)
	}
	return Forever
}

// lend gives the chosen domain its requests.
func (q *queue) lend(now Time) Decision {
	c := q.chosen
	r := c.request()
	q.why = reason{id: c.domain.ID, window: r.Predicted, rivals: c.unit.waiting - 1}
	if q.key = 0; q.amount == 1 {
		q.key = r.Key
	}
	q.withdraw(now, c)
	q.holder, q.chosen, q.closing, q.left, q.spent, q.heard, q.between = c, nil, nil, q.amount, 0, now, false
	if q.cap = q.most; q.books != nil {
		q.cap = min(q.cap, q.books.lasts(now))
	}
	for i := range c.heads {
		c.lent[i] = max(c.lent[i], c.heads[i].Seq)
	}
	return Decision{Grant, Lease{Domain: c.domain.ID, Kind: Requests, Amount: int64(q.amount), Until: Forever}}
}

func (q *queue) Explain() string {
	switch {
	case q.holder == nil:
		return q.name + ": " + q.idle()
	case q.alone:
		return fmt.Sprintf("%s: domain %d is alone, its gate stays open", q.name, q.why.id)
	}
	what := "a request"
	if q.amount > 1 {
		what = fmt.Sprintf("up to %d requests, the first", q.amount)
	}
	s := fmt.Sprintf("%s: domain %d has %s of about %v; ", q.name, q.why.id, what, q.why.window)
	if standing := q.share.explain(q.holder.unit); standing != "" {
		s += standing + "; "
	}
	s += fmt.Sprintf("%d others of its unit wait", q.why.rivals)
	if q.missed > 0 {
		s += fmt.Sprintf("; %d requests ended late", q.missed)
	}
	return s
}

// idle returns why no lease is in force.
func (q *queue) idle() string {
	refused := ""
	for _, id := range slices.Sorted(maps.Keys(q.tenants)) {
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
	c := q.tenants[id]
	switch {
	case c == q.holder, !c.waits():
		return ""
	case !c.unit.line.has(c.lane):
		return "reserve: " + c.lane.reserve.String()
	case q.holder != nil && q.holder.unit != c.unit:
		return fmt.Sprintf("share: domain %d has the accelerator", q.holder.domain.ID)
	case q.holder != nil:
		return fmt.Sprintf("order: domain %d of its unit is served", q.holder.domain.ID)
	case c.unit.first() != c:
		return fmt.Sprintf("order: domain %d of its unit goes first", c.unit.first().domain.ID)
	}
	return "share: " + q.share.explain(c.unit)
}
