package policies

import (
	"math/rand/v2"
	"testing"
	"time"
)

// TestCreditIsClamped: a unit that is a period ahead or behind restarts at 0.
func TestCreditIsClamped(t *testing.T) {
	for _, c := range []struct{ credit, income, periods, want time.Duration }{
		{20, 15, 1, 0},
		{10, 15, 1, 25},
		{15, 15, 1, 30},
		{-20, 15, 1, -5},
		{-46, 15, 1, 0},
		{-46, 15, 2, 15},
		{0, 15, 3, 0},
		{0, 15, 4, 15},
		{-30, 0, 9, -30},
		{-31, 0, 9, 0},
	} {
		if got := refilled(c.credit*ms, c.income*ms, 30*ms, c.periods); got != c.want*ms {
			t.Errorf("a credit of %d ms is %v after %d periods of %d ms, not %d ms", c.credit, got, c.periods, c.income, c.want)
		}
	}
}

// TestCreditIsRefilledPeriodByPeriod compares many periods at once with one after
// the other.
func TestCreditIsRefilledPeriodByPeriod(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 10_000 {
		period := time.Duration(1 + rng.Int64N(1000))
		income := time.Duration(rng.Int64N(int64(period) + 1))
		credit := time.Duration(rng.Int64N(2000)) + period - 2000
		periods := time.Duration(1 + rng.Int64N(50))
		want := credit
		for range periods {
			if want += income; want > period || want < -period {
				want = 0
			}
		}
		if got := refilled(credit, income, period, periods); got != want {
			t.Fatalf("%v + %d·%v in periods of %v is %v, not %v", credit, periods, income, period, got, want)
		}
	}
}

// TestUsedPerWindow: the window begins anew with the first tick after its end, and the use in the one before
// counts until then.
func TestUsedPerWindow(t *testing.T) {
	const period, window = 30 * ms, 100 * ms // rounded up to 120 ms
	p := creditAccount{busy: 50 * ms}
	for _, c := range []struct{ tick, known, over, busy time.Duration }{
		{90 * ms, 50 * ms, 90 * ms, 50 * ms},
		{120 * ms, 50 * ms, 120 * ms, 0},
		{150 * ms, 0, 30 * ms, 0},
		{510 * ms, 0, 30 * ms, 0},
	} {
		p.tick = Time(c.tick)
		p.look(period, window)
		if p.known != c.known || p.over != c.over || p.busy != c.busy {
			t.Errorf("at %v %v of %v are known and %v new, not %v of %v and %v", c.tick, p.known, p.over, p.busy, c.known, c.over, c.busy)
		}
	}
}

// TestUsedOnAverage: the running mean follows the use, and forgets it.
func TestUsedOnAverage(t *testing.T) {
	var p creditAccount
	for range 200 {
		p.recent += 15 * ms
		p.average(30*ms, 250*ms, 1)
	}
	if p.mean < 15*ms-ms/1000 || p.mean > 15*ms {
		t.Errorf("the mean of 15 ms is %v", p.mean)
	}
	p.recent = 100 * ms // one long request
	p.average(30*ms, 250*ms, 4)
	if p.mean < 18*ms || p.mean > 19*ms || p.recent != 0 {
		t.Errorf("after a long request the mean is %v, and %v are still to count", p.mean, p.recent)
	}
	one := p
	for range 20 {
		one.average(30*ms, 250*ms, 1)
	}
	p.average(30*ms, 250*ms, 20)
	if off := p.mean - one.mean; off < -ms/1000 || off > ms/1000 {
		t.Errorf("twenty periods at once leave %v, one after the other %v", p.mean, one.mean)
	}
	p.average(30*ms, 250*ms, 1<<40)
	if p.mean != 0 {
		t.Errorf("after years %v are left", p.mean)
	}
}
