package policies

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"pegasus/vcpu"
)

// waiters is a scheduler of domains that nearly always have work, beside a hypervisor that is fair, hostile,
// or absent. It records how long each waits for its gate.
type waiters struct {
	t       *testing.T
	rng     *rand.Rand
	sched   *Scheduler
	now     Time
	domains []Domain
	working []bool
	open    []bool
	since   []Time // since when its gate is closed and it has work
	opened  Time   // the gate that is open
	closed  []ID   // their requests in flight have not been reported
	longest []time.Duration
}

// longestBurst is the longest that a domain's work runs on after its window.
const longestBurst = 40 * ms

func newWaiters(t *testing.T, p Policy, rng *rand.Rand, n int) *waiters {
	c := &waiters{t: t, rng: rng, sched: NewScheduler(p), working: make([]bool, n), open: make([]bool, n),
		since: make([]Time, n), longest: make([]time.Duration, n)}
	for id := range ID(n) {
		d := Domain{ID: id, Credits: Credits(64 << rng.IntN(5)), CPU: Credits(64 << rng.IntN(5))}
		d.Promise.SLO = rng.IntN(1000/n + 1)
		c.domains = append(c.domains, d)
		c.sched.Step(0, &Event{Kind: Attach, Domain: d})
		c.sched.Step(0, &Event{Kind: Wake, Domain: d, Signal: ContextOpened})
		c.wake(id, Arrived)
	}
	c.ready()
	return c
}

func (c *waiters) wake(id ID, s Signal) {
	if c.working[id] == (s == Arrived) {
		return
	}
	c.working[id], c.since[id] = s == Arrived, c.now
	c.sched.Step(c.now, &Event{Kind: Wake, Domain: c.domains[id], Signal: s})
}

// run attaches and detaches domains until end.
func (c *waiters) run(end Time, sample func(now Time) *vcpu.Sample) {
	next := Time(0)
	for c.now < end {
		if c.now >= next {
			next = c.now.Add(30 * ms)
			if s := sample(c.now); s != nil {
				c.sched.Step(c.now, &Event{Kind: Observe, Sample: s})
			}
		}
		if at := min(c.sched.Next(), next); at > c.now {
			c.now = at
		}
		c.use()
		id := ID(c.rng.IntN(len(c.domains)))
		if c.rng.IntN(8) == 0 {
			c.wake(id, Drained)
		}
		for range 2 {
			c.wake(ID(c.rng.IntN(len(c.domains))), Arrived)
		}
		c.ready()
	}
	for id := range c.domains {
		c.waited(ID(id))
	}
}

// use reports the holder's use of its window, and by how much the previous one overran its own.
func (c *waiters) use() {
	for id, open := range c.open {
		if !open {
			continue
		}
		u := Usage{Compute: c.now.Sub(c.opened)}
		if !c.working[id] {
			u = Usage{Idle: u.Compute}
		}
		c.sched.Step(c.now, &Event{Kind: Charge, Domain: c.domains[id], Used: u})
		c.opened = c.now
	}
	for ; len(c.closed) > 0; c.closed = c.closed[1:] {
		late := Usage{Compute: time.Duration(c.rng.Int64N(int64(longestBurst)))}
		c.sched.Step(c.now, &Event{Kind: Charge, Domain: c.domains[c.closed[0]], Used: late})
	}
}

func (c *waiters) ready() {
	for _, a := range c.sched.Ready(c.now) {
		if !a.Open && c.rng.IntN(4) == 0 {
			c.closed = append(c.closed, a.Domain)
		}
		if a.Open && !c.open[a.Domain] {
			c.waited(a.Domain)
			c.opened = c.now
		}
		c.open[a.Domain], c.since[a.Domain] = a.Open, c.now
	}
}

func (c *waiters) waited(id ID) {
	if c.working[id] && !c.open[id] {
		c.longest[id] = max(c.longest[id], c.now.Sub(c.since[id]))
	}
}

// TestWaits checks each policy's bound, under any schedule of the hypervisor.
func TestWaits(t *testing.T) {
	for _, name := range []string{"rr", "accc", "xc", "slaf", "augc", "cosched"} {
		for _, mode := range []Mode{Production, Paper} {
			for _, kind := range schedules {
				t.Run(fmt.Sprintf("%s/%v/%s", name, mode, kind.name), func(t *testing.T) {
					for seed := range uint64(12) {
						testWaits(t, name, mode, kind.make, seed)
					}
				})
			}
		}
	}
}

func testWaits(t *testing.T, name string, mode Mode, kind func(*rand.Rand, []Domain) func(Time) *vcpu.Sample, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 5))
	o := Defaults(mode)
	o.SetOption(boost.Param, []int64{-1, 0, 1, 16}[seed%4])
	o.SetOption(maxSkip.Param, []int64{0, 1, 10}[seed%3])
	p, err := New(name, o)
	if err != nil {
		t.Fatal(err)
	}
	c := newWaiters(t, p, rng, 1+rng.IntN(12))
	c.run(Time(60*time.Second), kind(rng, c.domains))
	for id := range c.domains {
		if bound := waitBound(name, o.filled(), c.domains, id); c.longest[id] > bound {
			t.Errorf("seed %d: domain %d of %d waited %v, longer than %v", seed, id, len(c.domains), c.longest[id], bound)
		}
	}
}

// waitBound returns the longest time that a domain waits for its gate, by docs/policies.md.
func waitBound(name string, o Options, all []Domain, id int) time.Duration {
	share := func(d Domain) int64 { return int64(d.Credits) }
	switch {
	case name == "rr":
		share = func(Domain) int64 { return 1 }
	case name != "accc":
		share = func(d Domain) int64 { return int64(d.CPU) }
	}
	sum, least := int64(0), share(all[id])
	for _, d := range all {
		sum += share(d)
		least = min(least, share(d))
	}
	ticks := func(d Domain) time.Duration { return time.Duration(share(d)/least) * o.Tick }
	rotation := -ticks(all[id])
	for _, d := range all {
		rotation += ticks(d)
	}
	repaid := time.Duration(0) // cost of its last burst
	if o.Mode == Production {
		repaid = scaleTime(longestBurst, sum, share(all[id]))
	}
	mine, others := share(all[id]), time.Duration(len(all)-1)*o.Tick
	switch {
	case name == "augc":
		return scaleTime(time.Duration(2+2*o.boost())*o.span(), sum, mine) + repaid + others + o.Tick
	case name == "cosched" && o.Mode == Paper:
		return time.Duration(maxSkip.of(&o))*o.Tick + others + o.Tick
	case name == "cosched":
		skips := min(max(int64(maxSkip.of(&o)), (sum+mine-1)/mine), max(int64(maxSkip.of(&o)), 64))
		repaid += scaleTime(o.Tick, sum, mine) // its debt beyond the slack by its last window
		return time.Duration(skips)*o.Tick + repaid + others + o.Tick
	case name == "slaf":
		rotation += others
	}
	if o.Mode == Paper {
		return rotation
	}
	// A rotation or two, and those that its bursts cost it.
	rotation += o.Tick
	return 2*rotation + rotation*(4*longestBurst/(time.Duration(share(all[id])/least)*o.Tick)+1)
}

// schedules are behaviours of hypervisors. Some leave a domain out for ever.
var schedules = []struct {
	name string
	make func(rng *rand.Rand, all []Domain) func(Time) *vcpu.Sample
}{
	{"none", func(*rand.Rand, []Domain) func(Time) *vcpu.Sample {
		return func(Time) *vcpu.Sample { return nil }
	}},
	{"random", func(rng *rand.Rand, all []Domain) func(Time) *vcpu.Sample {
		return func(now Time) *vcpu.Sample {
			return sampleWith(rng, now, all, func(Domain) bool { return rng.IntN(3) == 0 })
		}
	}},
	{"hostile", func(rng *rand.Rand, all []Domain) func(Time) *vcpu.Sample {
		victim := ID(rng.IntN(len(all)))
		return func(now Time) *vcpu.Sample {
			s := sampleWith(rng, now, all, func(d Domain) bool { return d.ID != victim })
			for i := range s.Domains {
				s.Domains[i].Remaining = 1 << 40
			}
			return s
		}
	}},
	{"late", func(rng *rand.Rand, all []Domain) func(Time) *vcpu.Sample {
		return func(now Time) *vcpu.Sample {
			if rng.IntN(4) == 0 {
				return nil
			}
			return sampleWith(rng, now-Time(rng.Int64N(int64(120*ms))), all[:rng.IntN(len(all)+1)], func(Domain) bool { return true })
		}
	}},
}

// sampleWith returns a sample in which the domains run for which runs is true.
func sampleWith(rng *rand.Rand, at Time, all []Domain, runs func(Domain) bool) *vcpu.Sample {
	s := &vcpu.Sample{At: at, Period: 30 * ms, Quality: vcpu.Shadow}
	for _, d := range all {
		v := vcpu.VCPU{State: vcpu.Runnable}
		if runs(d) {
			v.State = vcpu.Running
		}
		s.Domains = append(s.Domains, vcpu.Schedule{ID: d.ID, Weight: d.CPU, Remaining: rng.Int64N(600) - 300, VCPUs: []vcpu.VCPU{v}})
	}
	return s
}
