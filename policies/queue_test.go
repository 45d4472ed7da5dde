package policies

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"pegasus/vcpu"
)

// perRequest are the policies that decide about single requests, each with the longest wait of a request
// among backlogged domains without priorities. turns is the sum of the domains' longest requests.
var perRequest = []struct {
	name  string
	bound func(m *model, c *client, turns time.Duration) time.Duration
}{
	// One request of each.
	{"fifo", func(_ *model, _ *client, turns time.Duration) time.Duration { return turns }},
	{"prt", func(_ *model, _ *client, turns time.Duration) time.Duration { return turns }},
	// One run of each, and its requests submitted by then: two.
	{"ht", func(m *model, _ *client, turns time.Duration) time.Duration {
		return 2*turns + time.Duration(len(m.domains))*10*ms
	}},
	// Each has its part while the poorest uses its limit: a period and the requests in flight then, two.
	{"credit", func(m *model, _ *client, turns time.Duration) time.Duration {
		sum, rotation := 0, time.Duration(0)
		for _, c := range m.domains {
			sum += c.credits
		}
		for _, c := range m.domains {
			rotation = max(rotation, (30*ms+2*longest(c))*time.Duration(sum)/time.Duration(c.credits))
		}
		return turns + rotation
	}},
	// Each goes to the end of the list when its window begins anew at the latest.
	{"band", func(m *model, _ *client, turns time.Duration) time.Duration {
		return turns + time.Duration(len(m.domains))*1110*ms
	}},
	// As many rounds as are needed to save up for the longest request, and one more.
	{"drr", func(m *model, c *client, turns time.Duration) time.Duration {
		var quanta time.Duration
		for _, o := range m.domains {
			quanta += ms / 2 * time.Duration(o.credits) / 256
		}
		rounds := longest(c)/(ms/2*time.Duration(c.credits)/256) + 2
		return turns + rounds*quanta
	}},
}

func longest(c *client) time.Duration {
	var most time.Duration
	for _, k := range c.kernels {
		most = max(most, k)
	}
	return most
}

// TestWaitsAreBounded: no request waits longer than its policy's bound (I3).
func TestWaitsAreBounded(t *testing.T) {
	for _, p := range perRequest {
		for seed := range uint64(30) {
			m := randomModel(t, p.name, rand.New(rand.NewPCG(seed, 5)), seed)
			m.run(Time(10 * time.Second))
			var turns time.Duration
			for _, c := range m.domains {
				turns += longest(c)
			}
			for _, c := range m.domains {
				if most := p.bound(m, c, turns) + m.latency; m.longest[c.id] > most {
					t.Errorf("%s, seed %d: a request of domain %d of %d waited %v, not %v at most", p.name, seed, c.id, len(m.domains), m.longest[c.id], most)
				}
				if c.used == 0 {
					t.Errorf("%s, seed %d: domain %d got nothing", p.name, seed, c.id)
				}
			}
		}
	}
}

// TestAloneNobodyWaits: with one domain present every policy conserves work and adds
// no wait (I7).
func TestAloneNobodyWaits(t *testing.T) {
	for _, name := range Names() {
		for _, promise := range []vcpu.Promise{{}, {Throughput: true, Priority: 3, Group: "g"}, {Reserve: vcpu.Reserve{Kind: vcpu.Posterior, Cost: ms, Period: 100 * ms}}} {
			m := newModel(mustNew(t, name, Production), 1)
			m.add(&client{id: 1, kernels: []time.Duration{ms, 7 * ms}, burst: 3, think: 2 * ms, promise: promise})
			m.run(Time(5 * time.Second))
			// Two requests may be in flight, so the third of a burst waits for the first.
			if m.gaps > 0 || m.longest[1] > 8*ms {
				t.Errorf("%s: alone a domain waited %v, the engine idled %v", name, m.longest[1], time.Duration(m.gaps))
			}
		}
	}
}

// TestEqualsGetEqualShares: equal domains get equal shares of the time, under every policy.
func TestEqualsGetEqualShares(t *testing.T) {
	for _, p := range perRequest {
		for _, think := range []time.Duration{0, 300 * time.Microsecond} {
			m := newModel(mustNew(t, p.name, Production), 1)
			for id := range ID(5) {
				m.add(&client{id: id, credits: 256, kernels: []time.Duration{4 * ms}, burst: 1, think: think})
			}
			m.run(Time(time.Second))
			m.measure()
			m.run(Time(21 * time.Second))
			for id, got := range m.shares() {
				if got < 19 || got > 21 {
					t.Errorf("%s, pauses of %v: domain %d got %.2f %%, not 20 %%", p.name, think, id, got)
				}
			}
		}
	}
}

// TestOtherNamesSameTurns gives the same domains other ids: each gets the same time as before, at the same
// times.
func TestOtherNamesSameTurns(t *testing.T) {
	run := func(policy string, rename map[ID]ID) (string, map[ID]time.Duration) {
		m := newModel(mustNew(t, policy, Production), 1)
		for i, kernel := range []time.Duration{5 * ms, ms, 25 * ms, 3 * ms} {
			m.add(&client{id: rename[ID(i)], credits: 256 << i, kernels: []time.Duration{kernel}, promise: vcpu.Promise{Priority: -i / 2}})
		}
		m.run(Time(3 * time.Second))
		back := make(map[ID]ID)
		for from, to := range rename {
			back[to] = from
		}
		log, used := "", make(map[ID]time.Duration)
		for _, a := range m.log {
			a.Domain, a.Lease.Domain = back[a.Domain], 0
			log += fmt.Sprintln(a)
		}
		for _, c := range m.domains {
			used[back[c.id]] = c.used
		}
		return log, used
	}
	for _, p := range perRequest {
		log, used := run(p.name, map[ID]ID{0: 0, 1: 1, 2: 2, 3: 3})
		otherLog, otherUsed := run(p.name, map[ID]ID{0: 7, 1: 3, 2: 5, 3: 1})
		if log != otherLog || !maps.Equal(used, otherUsed) {
			t.Errorf("%s: with other ids %v instead of %v", p.name, otherUsed, used)
		}
	}
}

// TestReservesLimit: over any stretch of time a reserve's members use no more than
// its part, and the last request of each period it began in.
func TestReservesLimit(t *testing.T) {
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 9))
		name := perRequest[rng.IntN(len(perRequest))].name
		m := newModel(mustNew(t, name, Production), seed)
		m.add(&client{id: 0, credits: 256, kernels: []time.Duration{ms}})
		var longestRequest time.Duration
		reserve := vcpu.Reserve{
			Kind:   []vcpu.ReserveKind{vcpu.Posterior, vcpu.Apriori}[seed%2],
			Shared: "shared",
			Cost:   ms + time.Duration(rng.Int64N(int64(9*ms))),
			Period: 20*ms + time.Duration(rng.Int64N(int64(30*ms))),
		}
		for id := ID(1); id <= ID(1+rng.IntN(3)); id++ {
			c := &client{id: id, credits: 65535, kernels: []time.Duration{ms / 10, time.Duration(1 + rng.Int64N(int64(20*ms)))}}
			c.promise = vcpu.Promise{Reserve: reserve, Priority: 1}
			longestRequest = max(longestRequest, longest(c))
			m.add(c)
		}
		used := func() time.Duration {
			var sum time.Duration
			for _, c := range m.domains[1:] {
				sum += c.used
			}
			return sum
		}
		for range 20 {
			from, before := m.now, used()
			m.run(m.now.Add(time.Duration(rng.Int64N(int64(time.Second)))))
			periods := m.now.Sub(from)/reserve.Period + 2
			// The savings for a long request, the budget of each period, and the requests running at both
			// ends.
			most := periods*reserve.Cost + 3*longestRequest
			if got := used() - before; got > most {
				t.Errorf("%s, seed %d: %v were used in %v, of %v in %v", name, seed, got, m.now.Sub(from), reserve.Cost, reserve.Period)
			}
		}
		if used() == 0 {
			t.Errorf("%s, seed %d: a reserve of %v in %v was not served", name, seed, reserve.Cost, reserve.Period)
		}
	}
}

// TestThousandsInTheBackground: a reserve of thousands costs no more than one of
// few, although all of them wait when its budget is used up.
func TestThousandsInTheBackground(t *testing.T) {
	s := NewScheduler(mustNew(t, "prt", Production))
	const n = 10_000
	for id := range ID(n) {
		d := Domain{ID: id, Promise: vcpu.Promise{Reserve: vcpu.Reserve{Kind: vcpu.Background}}}
		s.Step(0, &Event{Kind: Attach, Domain: d})
		s.Step(0, &Event{Kind: Head, Domain: d, Class: Compute, Request: Request{Seq: 1, Predicted: ms}})
	}
	q := s.accounts[0].policy.(*queue)
	compared := 0
	u := q.domains.common
	less := u.free.waiting.less
	lane := q.domains.tenants[0].lane
	lane.waiting.less = func(a, b *tenant) bool { compared++; return less(a, b) }
	now := Time(0)
	for seq := range uint64(1000) {
		for _, a := range s.Ready(now) {
			if !a.Open {
				continue
			}
			now = now.Add(3 * ms)
			s.Step(now, &Event{Kind: Charge, Domain: Domain{ID: a.Domain}, Used: Usage{Compute: 3 * ms, Requests: 1}})
			s.Step(now, &Event{Kind: Head, Domain: Domain{ID: a.Domain}, Class: Compute, Request: Request{Seq: seq + 2, Predicted: ms}})
		}
		now = max(now, min(s.Next(), now.Add(time.Second)))
	}
	if compared > 1000*100 {
		t.Errorf("1000 requests took %d comparisons", compared)
	}
}

// A request that was in flight before a lease may end under it, so that the lease is over before its own
// request. That one, which still waits, is lent again.
func TestEarlierWorkEndsUnderALease(t *testing.T) {
	for _, p := range perRequest {
		for _, mode := range []Mode{Production, Paper} {
			s := NewScheduler(mustNew(t, p.name, mode))
			a, b := Domain{ID: 1}, Domain{ID: 2}
			s.Step(0, &Event{Kind: Attach, Domain: a})
			s.Step(0, &Event{Kind: Attach, Domain: b})
			s.Ready(0)
			head := &Event{Kind: Head, Domain: a, Class: Compute, Request: Request{Seq: 7, Predicted: ms}}
			s.Step(1, &Event{Kind: Wake, Domain: a, Signal: Arrived})
			s.Step(1, head)
			opens := func(now Time) (n int) {
				for _, act := range s.Ready(now) {
					if act.Open && act.Domain == a.ID {
						n++
					}
				}
				return n
			}
			if opens(1) != 1 {
				t.Fatalf("%s, %v: no lease", p.name, mode)
			}
			s.Step(Time(ms), &Event{Kind: Charge, Domain: a, Used: Usage{Compute: ms, Requests: 1024}})
			again := opens(Time(ms))
			s.Step(Time(2*ms), head)
			if again += opens(Time(2 * ms)); again != 1 {
				t.Errorf("%s, %v: the request is lent %d times more", p.name, mode, again)
			}
		}
	}
}

// In a unit of several domains one gets requests of a millisecond together, or one that takes longer: each
// lease costs the accelerator some time, and with short requests one by one no domain could use a reasonable
// part of it. As published it is one.
func TestMembersGetTurns(t *testing.T) {
	for _, name := range []string{"credit", "band"} {
		for _, c := range []struct {
			mode      Mode
			predicted time.Duration
			want      int64
		}{{Production, 100 * time.Microsecond, 10}, {Production, 3 * ms, 1}, {Paper, 100 * time.Microsecond, 1}} {
			s := NewScheduler(mustNew(t, name, c.mode))
			for id := ID(1); id <= 3; id++ {
				s.Step(0, &Event{Kind: Attach, Domain: Domain{ID: id, Promise: vcpu.Promise{Group: "g"}}})
			}
			s.Ready(0)
			now := Time(60 * ms) // credit has come in
			s.Step(now, &Event{Kind: Wake, Domain: Domain{ID: 1}, Signal: Arrived})
			s.Step(now, &Event{Kind: Head, Domain: Domain{ID: 1}, Class: Compute, Request: Request{Seq: 1, Predicted: c.predicted}})
			for _, act := range s.Ready(now) {
				if act.Open && act.Lease.Amount != c.want {
					t.Errorf("%s, mode %v, requests of %v: %d are lent, not %d", name, c.mode, c.predicted, act.Lease.Amount, c.want)
				}
			}
		}
	}
}
