package gate

import (
	"slices"
	"testing"

	"pegasus/accel"
)

// A long request's use is charged while it continues, and counts as used after the gate has closed; each part is
// charged once.
func TestSpend(t *testing.T) {
	p, _, m := fixture(t)
	p.SetInFlightLimit(1000)
	p.Grant(Terms{Classes: AllClasses, Until: Forever, Budget: 10_000})
	ticket := try(t, m, Compute, 600, Admitted)
	left := func(want int64) {
		t.Helper()
		if got := p.at.leases[0].budget.Load(); got != want {
			t.Errorf("%d ns are left of the lease, want %d", got, want)
		}
	}
	left(9400)
	m.Spend(&ticket, usage(accel.Compute, 500))
	left(9400) // as reserved
	m.Spend(&ticket, usage(accel.CopyIn, 300))
	left(9200)
	used := func(want ...int64) {
		t.Helper()
		if st, _ := p.Statistics(m.index); !slices.Equal(st.Used[:], want) {
			t.Errorf("used %v, want %v", st.Used, want)
		}
	}
	used(500, 300, 0, 0)
	if w := p.Look(); w.Ended[Compute] != 0 || w.InFlight != 1 {
		t.Errorf("%+v", w)
	}
	if n := p.at.overrun[Compute].Load(); n != 0 {
		t.Errorf("%d ns were used beyond a lease that goes on", n)
	}
	p.Revoke(AllClasses)
	m.Spend(&ticket, usage(accel.Compute, 1000))
	m.Spend(&ticket, usage(accel.CopyOut, 400))
	if c, o := p.at.overrun[Compute].Load(), p.at.overrun[Copy].Load(); c != 1000 || o != 400 {
		t.Errorf("%d and %d ns were used since the gate closed, want 1000 and 400", c, o)
	}
	m.Finish(ticket, usage(accel.Compute, 2250)) // and 50 ns that Spend was not called for
	used(1550, 300, 400, 0)
	if w := p.Look(); w.Ended[Compute] != 1 || w.InFlight != 0 {
		t.Errorf("%+v", w)
	}
	// An unchanged lease gets back the unused reservation, or is charged the excess, once.
	p.Grant(Terms{Classes: AllClasses, Until: Forever, Budget: 10_000})
	for _, c := range []struct{ spent, all, want int64 }{{0, 100, 9900}, {400, 400, 9500}, {800, 900, 8600}, {700, 700, 7900}} {
		ticket := try(t, m, Compute, 600, Admitted)
		if c.spent > 0 {
			m.Spend(&ticket, usage(accel.Compute, c.spent))
		}
		m.Finish(ticket, usage(accel.Compute, c.all))
		left(c.want)
	}
}

// A request that outlasts its lease uses the budget of the following ones, and the daemon is notified when one is used
// up.
func TestSpendOutlastsLease(t *testing.T) {
	p, b, m := fixture(t)
	p.Grant(Terms{Classes: AllClasses, Until: Forever, Budget: 10_000})
	ticket := try(t, m, Compute, 600, Admitted)
	p.Grant(Terms{Classes: AllClasses, Until: Forever, Budget: 3000})
	rung := b.Rung()
	m.Spend(&ticket, usage(accel.Compute, 2000))
	if left := p.at.leases[0].budget.Load(); left != 1000 || b.Rung() != rung {
		t.Errorf("%d ns are left of the lease, want 1000; the bell was rung %d times", left, b.Rung()-rung)
	}
	m.Spend(&ticket, usage(accel.Compute, 1000))
	if b.Rung() != rung+1 {
		t.Error("the daemon does not hear that the budget is used up")
	}
	m.Finish(ticket, usage(accel.Compute, 3000))
	if left := p.at.leases[0].budget.Load(); left != 0 {
		t.Errorf("%d ns are left of the lease, want 0", left)
	}
}

// A worker that waits between two parts counts as blocked until the next lease only once the time allowed after the
// last one is used up: until then it may not have observed that there was another lease, and continues.
func TestHeld(t *testing.T) {
	p, _, m := fixture(t)
	p.SetInFlightLimit(1000)
	p.Grant(Terms{Classes: AllClasses, Until: Forever, Budget: 10_000})
	ticket := try(t, m, Compute, 600, Admitted)
	p.Revoke(AllClasses)
	m.slot.held[Compute].Store(1) // it has woken up for the lease, and not yet observed it
	for _, c := range []struct{ spent, held int64 }{{0, 0}, {999, 0}, {1, 1}} {
		m.Spend(&ticket, usage(accel.Compute, c.spent))
		if w := p.Look(); w.Held[Compute] != c.held {
			t.Errorf("%d are held, not %d: %+v", w.Held[Compute], c.held, w)
		}
	}
	m.slot.held[Compute].Store(0)
	m.Finish(ticket, usage(accel.Compute, 1000))
}

// The turn of a lease with a budget ends when the budget and the in-flight limit are used up, even if the daemon, which
// may be late, does not revoke the lease. Reserved time counts as unused, and the next lease starts anew.
func TestBudgetEndsTurn(t *testing.T) {
	p, _, m := fixture(t)
	p.SetInFlightLimit(1000)
	for _, terms := range []Terms{
		{Classes: AllClasses, Until: Forever, Budget: 5000},
		{Classes: ComputeOnly, Until: Forever, Budget: 5000},
	} {
		p.Grant(terms)
		ticket := try(t, m, Compute, 20_000, Admitted)
		for _, c := range []struct {
			spent int64
			turn  bool
		}{{0, true}, {4999, true}, {1, true}, {999, true}, {1, false}} {
			m.Spend(&ticket, usage(accel.Compute, c.spent))
			if got := m.HasTurn(Compute); got != c.turn {
				t.Errorf("%+v: after %d ns more the domain has its turn: %v, want %v", terms, c.spent, got, c.turn)
			}
		}
		p.Grant(terms)
		if !m.HasTurn(Compute) {
			t.Errorf("%+v: the domain has no turn under the next lease", terms)
		}
		m.Finish(ticket, usage(accel.Compute, 6000))
		p.Revoke(AllClasses)
	}
	p.Grant(Terms{Classes: AllClasses, Until: Forever})
	ticket := try(t, m, Compute, 600, Admitted)
	m.Spend(&ticket, usage(accel.Compute, 1_000_000))
	if !m.HasTurn(Compute) {
		t.Error("a lease without a budget was used up")
	}
	m.Finish(ticket, usage(accel.Compute, 1_000_000))
}

// A worker is idle while no request waits or is in flight.
func TestIdle(t *testing.T) {
	p, _, m := fixture(t)
	p.Grant(Terms{Classes: AllClasses, Until: Forever})
	idle := func() int64 { st, _ := p.Statistics(m.index); return st.Idle }
	grows := func() bool {
		first := idle()
		for start := Now(); Now() < start+1000; {
		}
		return idle() > first
	}
	if !grows() {
		t.Error("not idle before its first request")
	}
	ticket := try(t, m, Compute, 600, Admitted)
	if grows() {
		t.Error("idle with a request in flight")
	}
	m.Finish(ticket, usage(accel.Compute, 500))
	if !grows() {
		t.Error("not idle after its last request")
	}
}
