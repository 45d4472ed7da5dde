package policies

import (
	"fmt"
	"time"
)

var _ = register(Spec{
	Name: "band", Rank: 10, New: newBand, Lends: Requests, Share: byCredits,
	Params: []*Param{orderInUnit.Param, launches.Param, period.Param, window.Param, mean.Param, holdBack.Param},
	Serves: "the first domain in the list; one that used more than its part is held back for others that may return soon",
	Part:   "its part (`bandwidth`, or by credits), if its pauses are short",
})

var (
	window   = newDuration(Param{Key: "window", Doc: "interval over which use is measured"}, time.Second, 100*ms, 10*time.Second)
	mean     = newDuration(Param{Key: "mean", Zero: "the window counts", Doc: "time of a running mean in place of the window; 250 ms is a good value"}, 0, 30*ms, 10*time.Second)
	holdBack = newDuration(Param{Key: "hold_back", Doc: "how long a unit that used more than its part is held back for others"}, ms/2, ms/100, 30*ms)
)

// newBand returns BAND, Gdev's bandwidth-aware non-preemptive device scheduling: Credit, but a unit goes to
// the end of the list only when it also used more than its part of the last second; and where such a unit
// comes next it is held back for a moment, since another unit, which has just been served, may be back by
// then.
//
// That helps units that pause for less than hold_back between two requests. For longer pauses, and where no statistics
// of the pauses exist, see lag. A unit that has waited for the others' part of a rotation has its brief lease without
// being held back.
func newBand(o Options) Policy {
	if o.Mode == Paper {
		return newPublishedBand(o)
	}
	return newBursts("band", o, &band{newCredits(o), restraint{span: holdBack.of(&o)}})
}

// band is the share slot of band.
type band struct {
	*credits
	restraint
}

// restraint holds back a unit that used more than its part, for others that may come.
type restraint struct {
	span  time.Duration
	ended *unit // whose requests have just ended
	held  *unit // next unit, at until,
	until Time
	came  *unit // unless this unit, whose request came meanwhile, goes first
}

// rivals reports whether u may have to be held back: another unit has just been served.
func (r *restraint) rivals(u *unit) bool { return r.held == nil && r.ended != nil && r.ended != u }

// arrives is called when a unit has requests.
func (r *restraint) arrives(u *unit) {
	if r.held != nil && r.held != u && r.came == nil {
		r.came = u
	}
}

// forget removes a unit without requests from the candidates.
func (r *restraint) forget(u *unit) {
	if r.held == u {
		r.held, r.came = nil, nil
	}
	if r.came == u {
		r.came = nil
	}
}

// drop removes a unit.
func (r *restraint) drop(u *unit) {
	r.forget(u)
	if r.ended == u {
		r.ended = nil
	}
}

// clear ends the holding back.
func (r *restraint) clear() { r.ended, r.held, r.came = nil, nil, nil }

// choose returns the unit to serve, of which u is the first in the list and to be held back if so; nil: none before the
// returned time.
func (r *restraint) choose(now Time, u *unit, hold bool) (*unit, Time) {
	switch {
	case r.held == nil && hold:
		r.held, r.until = u, now.Add(r.span)
		return nil, r.until
	case r.held != nil && r.came != nil:
		u = r.came
	case r.held != nil && now < r.until:
		return nil, r.until
	case r.held != nil:
		u = r.held
	}
	r.clear()
	return u, Forever
}

// explain returns what to add to a unit's standing.
func (r *restraint) explain(u *unit) string {
	if u != r.held {
		return ""
	}
	return fmt.Sprintf("; held back until %v for others that may come", r.until.Sub(0))
}

func (b *band) complete(now Time, u *unit) {
	b.settle(now, u)
	b.release(now, u)
	b.ended = u
	if b.overdrawn(now, u) {
		b.toEnd(u)
	}
}

// overdrawn reports whether a unit has neither credit nor time left.
func (b *band) overdrawn(now Time, u *unit) bool {
	return creditAccountOf(u).credit <= 0 && b.greedy(now, u)
}

func (b *band) enqueue(now Time, u *unit) {
	b.credits.enqueue(now, u)
	b.arrives(u)
}

func (b *band) dequeue(now Time, u *unit) {
	b.credits.dequeue(now, u)
	b.forget(u)
}

func (b *band) unitRemoved(now Time, u *unit) {
	b.credits.unitRemoved(now, u)
	b.drop(u)
}

func (b *band) pick(now Time) (*unit, int, Time) {
	u := b.waiting.top()
	if u == nil {
		b.ended = nil
		return nil, 0, Forever
	}
	if o := b.passedOver(now); o != nil && o != u {
		b.clear()
		b.serve(now, o, true)
		return o, b.few(o), Forever
	}
	u, until := b.choose(now, u, b.rivals(u) && b.holds(now, u))
	if u == nil {
		return nil, 0, until
	}
	b.serve(now, u, false)
	if b.overdrawn(now, u) {
		return u, b.little(u), Forever
	}
	return u, b.burst(u), Forever
}

// little returns the number of requests lent to a unit that is overdrawn: as many as fit into a turn, at least one.
func (b *band) little(u *unit) int {
	return atMost(b.launches, turn, u.first().request().Predicted)
}

// holds reports whether a unit used more than its part.
func (b *band) holds(now Time, u *unit) bool {
	b.settle(now, u)
	return b.greedy(now, u)
}

func (b *band) explain(u *unit) string {
	used, of := b.share(b.now, u)
	return b.credits.explain(u) + b.usage(u, used, of) + b.restraint.explain(u)
}
