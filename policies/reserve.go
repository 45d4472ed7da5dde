package policies

import (
	"fmt"
	"math/bits"
	"slices"
	"time"

	"pegasus/vcpu"
)

// reserves is the part of a queue that decides which tenants may be served at all (TimeGraph's reservation
// policies; Kato et al., "TimeGraph: GPU Scheduling for Real-Time Multi-Tasking Environments", USENIX ATC
// 2011). A reserve has a budget. Its members' use is subtracted from the budget, and each period adds the
// reserve's cost.
//
//	PE  a request is admitted while the budget is positive; it may overrun
//	AE  a request is admitted when its predicted cost is within the budget; for one
//	    that costs more than the reserve the budget is saved up
//
// All reserves together get at most limit ppm of the accelerator. A domain with a reserve that does not fit
// is in the background, as are the domains that are configured so.
type reserves struct {
	limit      uint64 // of all parts, in ppm
	taken      uint64
	shared     map[string]*reserve
	background *reserve
	refused    []*tenant     // for lack of capacity, the first in front
	timers     heap[reserve] // reserves with a waiting lane, by refill
}

// ReserveLimit returns the part of the accelerator, 0 to 1, that all reserves together may take.
func ReserveLimit(v Values) float64 { return float64(reserveLimit.of(&Options{Values: v})) / 100 }

// reserve limits its members to cost in every period.
type reserve struct {
	kind   vcpu.ReserveKind
	name   string // of one that is shared
	cost   time.Duration
	period time.Duration
	part   uint64 // of the accelerator, in ppm
	users  int
	lanes  []*lane

	budget time.Duration // negative: overdrawn
	from   Time          // start of the period that budget belongs to
	refill Time          // when a lane that is refused now may be admitted
	at     int           // in timers
}

var (
	backgroundCost   = newDuration(Param{Key: "background_cost", Doc: "time of all domains in the background together"}, 5*ms/2, ms/100, time.Second)
	backgroundPeriod = newDuration(Param{Key: "background_period", AtLeast: backgroundCost.Param, Doc: "interval in which background_cost is used"}, 25*ms, ms, 10*time.Second)
	historyKeys      = newCount(Param{Key: "history", Zero: "as workers predict", bare: true, Doc: "keys in each domain's table of costs, for a-priori reserves"}, 100, 0, 1<<16)
	reserveLimit     = newCount(Param{Key: "reserve_limit", Unit: "%", Doc: "limit of all reserves together"}, 90, 1, 100)
)

// reserveParams are the parameters that all policies with reserves have.
var reserveParams = []*Param{backgroundCost.Param, backgroundPeriod.Param, historyKeys.Param, reserveLimit.Param}

const million = 1_000_000

func newReserves(o Options) reserves {
	background := newReserve(0, vcpu.Reserve{Kind: vcpu.Posterior, Shared: "background", Cost: backgroundCost.of(&o), Period: backgroundPeriod.of(&o)})
	return reserves{
		limit:      uint64(reserveLimit.of(&o)) * million / 100,
		taken:      background.part,
		shared:     make(map[string]*reserve),
		background: background,
		timers: heap[reserve]{
			at:   func(r *reserve) *int { return &r.at },
			less: func(a, b *reserve) bool { return a.refill < b.refill },
		},
	}
}

func newReserve(now Time, p vcpu.Reserve) *reserve {
	cost := min(p.Cost, p.Period)
	return &reserve{
		kind: p.Kind, name: p.Shared, cost: cost, period: p.Period,
		part:   muldiv(uint64(cost), million, uint64(p.Period), true),
		budget: cost, from: now, refill: Forever,
	}
}

// join finds or makes c's reserve, and in it the lane of c's unit.
func (rs *reserves) join(now Time, c *tenant, before order) *lane {
	r := rs.of(now, c)
	if r == nil {
		return &c.unit.free
	}
	r.users++
	for _, l := range r.lanes {
		if l.unit == c.unit {
			l.users++
			return l
		}
	}
	l := newLane(c.unit, r, before)
	l.users = 1
	r.lanes = append(r.lanes, &l)
	return &l
}

// of returns the reserve that c belongs to; nil: none.
func (rs *reserves) of(now Time, c *tenant) *reserve {
	p := c.domain.Promise.Reserve
	switch {
	case p.Kind == vcpu.Background:
		return rs.background
	case p.Kind != vcpu.Posterior && p.Kind != vcpu.Apriori, p.Cost <= 0, p.Period <= 0:
		return nil
	case p.Shared != "" && rs.shared[p.Shared] != nil:
		return rs.shared[p.Shared]
	}
	r := newReserve(now, p)
	if rs.taken+r.part > rs.limit {
		c.refused = true
		rs.refused = append(rs.refused, c)
		return rs.background
	}
	rs.taken += r.part
	if r.name != "" {
		rs.shared[r.name] = r
	}
	return r
}

// part removes c, which is not in line, from its reserve.
func (rs *reserves) part(c *tenant) {
	if c.refused {
		c.refused = false
		rs.refused = slices.DeleteFunc(rs.refused, func(o *tenant) bool { return o == c })
	}
	l := c.lane
	r := l.reserve
	if r == nil {
		return
	}
	if l.users--; l.users == 0 {
		r.lanes = slices.DeleteFunc(r.lanes, func(o *lane) bool { return o == l })
	}
	if r.users--; r.users > 0 || r == rs.background {
		return
	}
	rs.taken -= r.part
	if r.name != "" {
		delete(rs.shared, r.name)
	}
}

// fits returns the first refused tenant with a reserve that fits now, or nil.
func (rs *reserves) fits() *tenant {
	for _, c := range rs.refused {
		p := c.domain.Promise.Reserve
		if p.Shared != "" && rs.shared[p.Shared] != nil || rs.taken+newReserve(0, p).part <= rs.limit {
			return c
		}
	}
	return nil
}

// arm sets a reserve's timer to the time when the first of the lanes that it refuses may be admitted.
func (rs *reserves) arm(r *reserve) {
	at := Forever
	for _, l := range r.lanes {
		if l.waiting.len() > 0 && !l.unit.line.has(l) {
			at = min(at, r.enough(r.wants(l.waiting.top())))
		}
	}
	if rs.timers.has(r) {
		rs.timers.remove(r)
	}
	if r.refill = at; at < Forever {
		rs.timers.push(r)
	}
}

// next returns the time of the next refill that admits a request.
func (rs *reserves) next() Time {
	if r := rs.timers.top(); r != nil {
		return r.refill
	}
	return Forever
}

// admitted reports whether the lane's first request may be served under its reserve.
func (l *lane) admitted(now Time) bool {
	c := l.waiting.top()
	if c == nil || l.reserve == nil {
		return c != nil
	}
	l.settle(now)
	return l.reserve.budget >= l.reserve.wants(c)
}

func (l *lane) settle(now Time) {
	if l.reserve != nil {
		l.reserve.settle(now)
	}
}

// wants returns the least budget with which c's request is admitted.
func (r *reserve) wants(c *tenant) time.Duration {
	if r.kind == vcpu.Apriori {
		return max(c.request().Predicted, 1)
	}
	return 1
}

// settle adds the costs of the periods that have begun since. The budget is at most the cost, or the need of
// a lane's first request.
func (r *reserve) settle(now Time) {
	periods := now.Sub(r.from) / r.period
	if periods <= 0 {
		return
	}
	most := r.cost
	for _, l := range r.lanes {
		if c := l.waiting.top(); c != nil {
			most = max(most, r.wants(c))
		}
	}
	r.from = r.from.Add(periods * r.period)
	r.budget = min(r.budget+periods*r.cost, most)
}

func (r *reserve) debit(now Time, d time.Duration) {
	r.settle(now)
	r.budget -= d
}

// enough returns the time at which the budget reaches `want`.
func (r *reserve) enough(want time.Duration) Time {
	n := (max(want-r.budget, 0) + r.cost - 1) / r.cost
	if n > time.Duration(Forever)/r.period {
		return Forever
	}
	return r.from.Add(n * r.period)
}

func (r *reserve) String() string {
	s := fmt.Sprintf("%v of %v in %v are left", r.budget, r.cost, r.period)
	if r.refill < Forever {
		s += fmt.Sprintf(", enough at %v", time.Duration(r.refill))
	}
	return s
}

// muldiv returns a·b/c, rounded up if up is set, and at most the greatest uint64.
func muldiv(a, b, c uint64, up bool) uint64 {
	hi, lo := bits.Mul64(a, b)
	if hi >= c {
		return 1<<64 - 1
	}
	q, rest := bits.Div64(hi, lo, c)
	if up && rest > 0 && q+1 > q {
		q++
	}
	return q
}

// inBackground reports whether t has only the background reserve.
func (t *tenant) inBackground() bool {
	return t.refused || t.domain.Promise.Reserve.Kind == vcpu.Background
}
