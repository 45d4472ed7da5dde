package policies

import (
	"fmt"
	"math/bits"
	"time"
)

// allotment is the list of units of Credit and BAND, with the income and the use of each.
type allotment struct {
	*rotation
	launches             int
	period, window, mean time.Duration
	now                  Time // latest time reported

	// The sum of the parts promised to units, in ‰, and the credits of the units without a promised part:
	// they share the rest.
	parts   int64
	weights int64
	version int // of these sums
}

func newAllotment(o Options) allotment {
	return allotment{rotation: newRotation(), launches: launches.of(&o), period: period.of(&o), window: window.of(&o), mean: mean.of(&o)}
}

// creditAccount is a unit's account under Credit and BAND.
type creditAccount struct {
	bw, weight int64         // as counted in the sums
	income     time.Duration // per period, as of this version of the sums
	version    int
	credit     time.Duration
	line       line // in the tab; not as published
	turns      turns
	tick       Time // start of its current period

	// busy is the time used since start, and `known` the part of it up to the last tick.
	start       Time
	busy        time.Duration
	known, over time.Duration

	mean   time.Duration // used per period, running mean
	recent time.Duration // used, but not in the mean yet
}

// creditAccountOf returns the account of a unit under Credit or BAND.
func creditAccountOf(u *unit) *creditAccount { return u.state.(*creditAccount) }

// leastRest is the part, in ‰, that always remains for the units without a promised part, however much was
// promised to the others.
const leastRest = 10

func (c *allotment) unitChanged(now Time, u *unit) {
	if u.state == nil {
		u.state = &creditAccount{tick: now, start: now}
	}
	p := creditAccountOf(u)
	c.rotation.unitChanged(now, u)
	c.uncount(u)
	if p.bw = u.bw; p.bw == 0 {
		p.weight = u.credits
	}
	c.parts += p.bw
	c.weights += p.weight
	c.version++
}

func (c *allotment) unitRemoved(now Time, u *unit) {
	c.rotation.unitRemoved(now, u)
	c.uncount(u)
}

// uncount removes a unit from the sums that the others' incomes depend on.
func (c *allotment) uncount(u *unit) {
	p := creditAccountOf(u)
	c.parts -= p.bw
	c.weights -= p.weight
	p.bw, p.weight = 0, 0
	c.version++
}

// income returns the increase of a unit's credit per period. All incomes together are at most a period.
func (c *allotment) income(u *unit) time.Duration {
	p := creditAccountOf(u)
	if p.version != c.version {
		p.income, p.version = c.earns(p), c.version
	}
	return p.income
}

func (c *allotment) earns(p *creditAccount) time.Duration {
	rest := int64(0)
	if c.weights > 0 {
		rest = max(1000-c.parts, leastRest)
	}
	all := uint64(max(c.parts+rest, 1000))
	period := uint64(c.period)
	if p.bw > 0 {
		return time.Duration(muldiv(period, uint64(p.bw), all, false))
	}
	return time.Duration(muldiv(muldiv(period, uint64(rest), all, false), uint64(p.weight), uint64(c.weights), false))
}

// advance updates the record of a unit's use to now, and returns the number of periods since the last update. Changes of
// the incomes since then take effect from now on.
func (c *allotment) advance(now Time, u *unit) time.Duration {
	c.now = max(c.now, now)
	p := creditAccountOf(u)
	periods := now.Sub(p.tick) / c.period
	if periods <= 0 {
		return 0
	}
	p.tick = p.tick.Add(periods * c.period)
	p.look(c.period, c.window)
	if c.mean > 0 {
		p.average(c.period, c.mean, periods)
	}
	return periods
}

// use records use.
func (p *creditAccount) use(d, period time.Duration) {
	p.busy += d
	p.recent = min(p.recent+d, 8*period)
}

// look records the use up to the tick. The window begins anew with the first tick after its end.
func (p *creditAccount) look(period, window time.Duration) {
	window = (window + period - 1) / period * period
	windows := p.tick.Sub(p.start) / window
	p.known, p.over = p.busy, p.tick.Sub(p.start)
	if windows == 0 {
		return
	}
	end := p.start.Add(windows * window)
	if end < p.tick || windows > 1 {
		p.known, p.over = 0, p.tick.Sub(end)
	}
	p.start, p.busy = end, 0
}

// average adds the last periods to the mean.
func (p *creditAccount) average(period, over, periods time.Duration) {
	for ; periods > 0 && p.recent > 0; periods-- {
		last := min(p.recent, period)
		p.recent -= last
		p.mean += (last - p.mean) * period / (period + over)
	}
	keep := muldiv(1<<32, uint64(over), uint64(period+over), false)
	for ; periods > 0 && p.mean > 0; periods /= 2 {
		if periods%2 == 1 {
			p.mean = time.Duration(uint64(p.mean) * keep >> 32)
		}
		keep = keep * keep >> 32
	}
}

// exceeds reports whether a unit that used so much of a time used more than its part.
func (c *allotment) exceeds(u *unit, used, of time.Duration) bool {
	hi, lo := bits.Mul64(uint64(used), uint64(c.period))
	hi2, lo2 := bits.Mul64(uint64(of), uint64(c.income(u)))
	return hi > hi2 || hi == hi2 && lo > lo2
}

// usage describes the use of a unit beside its part.
func (c *allotment) usage(u *unit, used, of time.Duration) string {
	return fmt.Sprintf(", used %d %% of its %d %%", percent(used, of), percent(c.income(u), c.period))
}

func percent(part, of time.Duration) uint64 { return muldiv(uint64(part), 100, uint64(of), false) }
