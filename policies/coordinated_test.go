package policies

import (
	"math/rand/v2"
	"testing"
	"time"

	"pegasus/vcpu"
)

// TestCoSchedChooses has balances of 10, -50 and 40 credits, and only domain 2's vCPU runs: it is next, and
// when none runs, domain 3.
func TestCoSchedChooses(t *testing.T) {
	for _, mode := range []Mode{Production, Paper} {
		for _, c := range []struct {
			runs []ID
			want ID
		}{{[]ID{2}, 2}, {nil, 3}, {[]ID{1, 2}, 1}, {[]ID{9}, 3}} {
			policy := mustNew(t, "cosched", mode)
			p := ticksOf(policy)
			p.pot.begun = true // no more time is shared out
			for id, balance := range map[ID]int64{1: 10, 2: -50, 3: 40} {
				policy.Attach(0, Domain{ID: id})
				policy.Wake(0, id, ContextOpened)
				policy.Wake(0, id, Arrived)
				e := p.members[id]
				e.balance = balance * int64(creditTime) << scaleBits
				p.pot.line.fix(e, p.pot.value)
			}
			s := &vcpu.Sample{Quality: vcpu.Exact}
			for _, id := range c.runs {
				s.Domains = append(s.Domains, vcpu.Schedule{ID: id, VCPUs: []vcpu.VCPU{{State: vcpu.Blocked}, {Next: 500}}})
			}
			p.Observe(0, s)
			if d, _, _ := policy.Pick(0); d.Lease.Domain != c.want {
				t.Errorf("%v mode, %d run: domain %d is next, not %d", mode, c.runs, d.Lease.Domain, c.want)
			}
		}
	}
}

// ticksOf returns the state that augc and cosched have in both modes.
func ticksOf(p Policy) *ticks {
	if p, ok := p.(*publishedTicks); ok {
		return &p.ticks
	}
	return &p.(*coordinated).ticks
}

// TestCoSchedInStep has slices as long as ticks: two domains, and a third without accelerator work, in turn.
// Each decision falls into a slice's last milliseconds, so the domain that runs then has no more of the
// window than those.
func TestCoSchedInStep(t *testing.T) {
	for _, mode := range []Mode{Production, Paper} {
		policy := mustNew(t, "cosched", mode)
		p := ticksOf(policy)
		for id := ID(1); id <= 2; id++ {
			policy.Attach(0, Domain{ID: id})
			policy.Wake(0, id, ContextOpened)
			policy.Wake(0, id, Arrived)
		}
		tick := p.opt.Tick
		left := tick / 10
		slice := func(n int) ID { return ID(n%3 + 1) } // owner of the slice
		for n := range 300 {
			now := Time(time.Duration(n+1)*tick - left)
			s := &vcpu.Sample{At: now, Quality: vcpu.Shadow}
			for id := ID(1); id <= 2; id++ {
				v := vcpu.VCPU{State: vcpu.Runnable}
				if id == slice(n) {
					v.State, v.Next = vcpu.Running, 100
				}
				if id == slice(n+1) {
					v.Next = 900
				}
				s.Domains = append(s.Domains, vcpu.Schedule{ID: id, VCPUs: []vcpu.VCPU{v}})
			}
			p.Observe(now, s)
			d, _, _ := policy.Pick(now)
			if d.Op == Revoke {
				d, _, _ = policy.Pick(now)
			}
			policy.Charge(now.Add(tick), d.Lease.Domain, Usage{Compute: tick})
			if next := slice(n + 1); next <= 2 && d.Lease.Domain != next {
				t.Fatalf("%v mode, tick %d: the window is domain %d's, and the CPU domain %d's", mode, n, d.Lease.Domain, next)
			}
		}
	}
}

// TestExtraTicks has an objective of half the time, of which 380 ms were given in the last second: the next
// four windows are longer by a tick.
func TestExtraTicks(t *testing.T) {
	for _, c := range []struct {
		slo            int
		served, demand time.Duration
		closed         bool
		want           int
	}{
		{500, 380 * ms, time.Second, false, 4},
		{500, 485 * ms, time.Second, false, 0}, // less than half a tick counts as nothing
		{500, 484 * ms, time.Second, false, 1},
		{500, 700 * ms, time.Second, false, 0},
		{500, 380 * ms, 499 * ms, false, 0}, // its demand was not higher
		{500, 380 * ms, 500 * ms, false, 4},
		{500, 380 * ms, time.Second, true, 0},
		{0, 0, time.Second, false, 0},
	} {
		p := mustNew(t, "slaf", Paper).(publishedSLAF)
		p.Attach(0, Domain{ID: 1, Promise: vcpu.Promise{SLO: c.slo}})
		o := p.members[1]
		o.since, o.context, o.served, o.demand = Time(time.Second), !c.closed, c.served, c.demand
		if p.scan(Time(time.Second)); o.extra != c.want {
			t.Errorf("%+v: %d extra ticks", c, o.extra)
		}
	}
}

// TestTournament compares the winner with the greatest of all, while balances
// grow, are spent, and come and go.
func TestTournament(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 6))
	for range 50 {
		line := tournament{most: 1 << (10 + rng.IntN(30))}
		pot := rng.Uint64() // it wraps
		entrants := make([]*domainState, 1+rng.IntN(40))
		for i := range entrants {
			e := &domainState{credits: 1 + rng.Int64N(1<<rng.IntN(17)), place: uint64(i), pot: pot}
			entrants[i] = e
			line.enroll(e, pot)
		}
		for range 2000 {
			pot += uint64(rng.Int64N(line.most>>rng.IntN(17) + 1))
			e := entrants[rng.IntN(len(entrants))]
			if line.has(e) {
				line.remove(e, pot)
			} else {
				e.balance, e.pot = e.at(pot, line.most)-rng.Int64N(line.most), pot
				e.balance = max(e.balance, -line.most)
				line.enter(e, pot)
			}
			checkTop(t, &line, entrants, pot)
		}
	}
}

func checkTop(t *testing.T, line *tournament, entrants []*domainState, pot uint64) {
	t.Helper()
	var best *domainState
	for _, e := range entrants {
		if !line.has(e) {
			continue
		}
		if x := e.at(pot, line.most); best == nil || x > best.at(pot, line.most) {
			best = e // among equals the one with the lower place comes first
		}
	}
	if top := line.top(pot); top != best {
		t.Fatalf("%+v won, not %+v", top, best)
	}
}

// TestAloneNeverWaits has one domain, with any schedule of the hypervisor: its gate opens with its first work
// and stays open.
func TestAloneNeverWaits(t *testing.T) {
	for _, name := range []string{"rr", "accc", "xc", "slaf", "augc", "cosched"} {
		for _, mode := range []Mode{Production, Paper} {
			rng := rand.New(rand.NewPCG(1, 7))
			s := NewScheduler(mustNew(t, name, mode))
			d := Domain{ID: 3, Promise: vcpu.Promise{SLO: 900}}
			s.Step(0, &Event{Kind: Attach, Domain: d})
			s.Step(0, &Event{Kind: Wake, Domain: d, Signal: ContextOpened})
			s.Step(0, &Event{Kind: Wake, Domain: d, Signal: Arrived})
			if a := s.Ready(0); len(a) != 1 || !a[0].Open || a[0].Lease.Until != Forever {
				t.Errorf("%s, %v: alone, %v", name, mode, a)
			}
			for now := Time(0); now < Time(5*time.Second); now += Time(7 * ms) {
				s.Step(now, &Event{Kind: Observe, Sample: sampleWith(rng, now, []Domain{d, {ID: 4}}, func(Domain) bool { return rng.IntN(2) == 0 })})
				s.Step(now, &Event{Kind: Charge, Domain: d, Used: Usage{Compute: time.Duration(rng.Int64N(int64(50 * ms)))}})
				s.Step(now, &Event{Kind: Wake, Domain: d, Signal: Signal(rng.IntN(2))})
				if a := s.Ready(now); len(a) > 0 {
					t.Fatalf("%s, %v: alone, %v", name, mode, a)
				}
			}
		}
	}
}
