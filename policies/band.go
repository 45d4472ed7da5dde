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
// That helps units whose pause between two requests is shorter than hold_back. For longer pauses, and where no
// statistics of the pauses exist, see lag. A unit that has waited for the others' part of a rotation has its
// brief lease without being held back.
func newBand(o Options) Policy {
	return newBursts("band", o, &band{credits: newCredits(o), holdBack: holdBack.of(&o)})
}

// band is the share slot of band.
type band struct {
	*credits
	holdBack time.Duration

	ended *unit // whose requests have just ended
	held  *unit // next unit, at until,
	until Time
	came  *unit // unless this unit, whose request came meanwhile, goes first
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
	if b.held != nil && b.held != u && b.came == nil {
		b.came = u
	}
}

func (b *band) dequeue(now Time, u *unit) {
	b.credits.dequeue(now, u)
	b.forget(u)
}

func (b *band) unitRemoved(now Time, u *unit) {
	b.credits.unitRemoved(now, u)
	b.forget(u)
	if b.ended == u {
		b.ended = nil
	}
}

// forget removes a unit without requests from the candidates.
func (b *band) forget(u *unit) {
	if b.held == u {
		b.held, b.came = nil, nil
	}
	if b.came == u {
		b.came = nil
	}
}

func (b *band) pick(now Time) (*unit, int, Time) {
	u := b.waiting.top()
	if u == nil {
		b.ended = nil
		return nil, 0, Forever
	}
	if o := b.passedOver(now); o != nil && o != u {
		b.ended, b.held, b.came = nil, nil, nil
		b.serve(now, o, true)
		return o, b.few(o), Forever
	}
	switch {
	case b.held == nil && b.holds(now, u):
		b.held, b.until = u, now.Add(b.holdBack)
		return nil, 0, b.until
	case b.held != nil && b.came != nil:
		u = b.came
	case b.held != nil && now < b.until:
		return nil, 0, b.until
	case b.held != nil:
		u = b.held
	}
	b.ended, b.held, b.came = nil, nil, nil
	b.serve(now, u, false)
	if b.overdrawn(now, u) {
		return u, b.little(u), Forever
	}
	return u, b.burst(u), Forever
}

// little returns the number of requests lent to a unit that is overdrawn: one, but in production mode as many
// as fit into a turn, if they are shorter than that.
func (b *band) little(u *unit) int {
	if b.opt.Mode == Paper {
		return 1
	}
	return atMost(b.launches, turn, u.first().request().Predicted)
}

// holds reports whether a unit is held back: it used more than its part, and another has just been served.
func (b *band) holds(now Time, u *unit) bool {
	if b.ended == nil || b.ended == u {
		return false
	}
	b.settle(now, u)
	return b.greedy(now, u)
}

func (b *band) explain(u *unit) string {
	used, of := b.credits.share(b.now, u)
	s := fmt.Sprintf("%s, used %d %% of its %d %%", b.credits.explain(u), percent(used, of), percent(b.income(u), b.period))
	if u == b.held {
		s += fmt.Sprintf("; held back until %v for others that may come", b.until.Sub(0))
	}
	return s
}
