package boost

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pegasus/vcpu"
)

const ms = time.Millisecond

func at(d time.Duration) vcpu.Time { return vcpu.Time(d) }

// shares returns a machine under version 1 of cgroups.
func shares(domain string, weight int64) Machine {
	return Machine{domain, weight, weight, 2, MaxWeight}
}

// stage simulates the events of the gates with a host whose machines always compete for the CPUs.
type stage struct {
	t      *testing.T
	b      Boosts
	now    time.Duration
	pools  []Pool
	has    map[string]int64
	ran    map[string]time.Duration
	wrote  map[string][]time.Duration
	raised map[string][]span
	free   map[string]bool // its next write needs no distance from the last
}

type span struct{ from, to time.Duration }

func newStage(t *testing.T, pools ...Pool) *stage {
	s := &stage{t: t, has: map[string]int64{}, ran: map[string]time.Duration{}, wrote: map[string][]time.Duration{},
		raised: map[string][]span{}, free: map[string]bool{}}
	s.set(pools...)
	return s
}

func (s *stage) set(pools ...Pool) {
	s.pools = pools
	for _, p := range pools {
		for i := range p.Machines {
			m := &p.Machines[i]
			if s.has[m.Domain] == 0 {
				s.has[m.Domain] = m.Weight
			}
			m.Has = s.has[m.Domain]
		}
	}
	s.b.Set(at(s.now), pools)
	s.write()
}

func (s *stage) machine(domain string) Machine {
	for _, p := range s.pools {
		for _, m := range p.Machines {
			if m.Domain == domain {
				return m
			}
		}
	}
	return Machine{}
}

func (s *stage) write() {
	s.t.Helper()
	for _, w := range s.b.Writes(at(s.now)) {
		times := s.wrote[w.Domain]
		if n := len(times); n > 0 && s.now-times[n-1] < MinWindow && s.machine(w.Domain).Domain != "" {
			s.t.Fatalf("at %v %s is written %v after the last time", s.now, w.Domain, s.now-times[n-1])
		}
		s.wrote[w.Domain] = append(times, s.now)
		was, m := s.has[w.Domain], s.machine(w.Domain)
		if m.Domain != "" && (w.Weight < m.Least || w.Weight > m.Most) || w.Weight == was {
			s.t.Fatalf("%s, which has %d, is to have %d of %d to %d", w.Domain, was, w.Weight, m.Least, m.Most)
		}
		s.has[w.Domain] = w.Weight
		if w.Weight > m.Weight && m.Domain != "" {
			s.raised[w.Domain] = append(s.raised[w.Domain], span{s.now, -1})
		} else if all := s.raised[w.Domain]; len(all) > 0 && all[len(all)-1].to < 0 {
			all[len(all)-1].to = s.now
		}
	}
}

// until advances time: weights are written when they are due.
func (s *stage) until(end time.Duration) {
	s.t.Helper()
	for s.now < end {
		step := min(end, time.Duration(s.b.Next()))
		if step <= s.now && step < end {
			s.t.Fatalf("at %v it wants to be asked at %v", s.now, step)
		}
		for _, p := range s.pools {
			sum := p.Others
			for _, m := range p.Machines {
				sum += s.has[m.Domain]
			}
			for _, m := range p.Machines {
				s.ran[m.Domain] += (step - s.now) * time.Duration(s.has[m.Domain]) / time.Duration(sum)
			}
		}
		s.now = step
		s.write()
	}
}

func (s *stage) expect(what string, want map[string]int64) {
	s.t.Helper()
	for name, w := range want {
		if s.has[name] != w {
			s.t.Errorf("%s: at %v %s has %d, not %d", what, s.now, name, s.has[name], w)
		}
	}
}

// A window raises the weight, its end lowers it until all is given back; then all weights are the configured
// ones.
func TestWindow(t *testing.T) {
	s := newStage(t, Pool{Name: "p", Machines: []Machine{shares("a", 1024), shares("b", 2048)}})
	s.until(200 * ms)
	s.b.Open(at(s.now), "a", 30*ms)
	s.write()
	s.expect("in its window", map[string]int64{"a": 4096, "b": 2048})
	s.until(229 * ms)
	s.expect("in its window", map[string]int64{"a": 4096, "b": 2048})
	s.b.Close(at(s.now), "a")
	s.write()
	s.expect("after it", map[string]int64{"a": 256, "b": 2048})
	s.until(500 * ms)
	s.expect("long after", map[string]int64{"a": 1024, "b": 2048})
	if off := s.ran["a"] - s.now/3; off.Abs() > 2*ms {
		t.Errorf("it had %v more than its part", off)
	}
	if s.b.Next() != vcpu.Forever || len(s.wrote["a"]) != 3 || len(s.wrote["b"]) != 0 {
		t.Errorf("next %v, written %v", s.b.Next(), s.wrote)
	}
}

// Short windows, lone machines, and those whose weight can't be lowered change nothing.
func TestNothingToRaise(t *testing.T) {
	s := newStage(t, Pool{Name: "p", Machines: []Machine{shares("a", 1024), shares("b", 1024), {"least", 1, 1, 1, 10000}, {"most", 10000, 10000, 1, 10000}}},
		Pool{Name: "q", Others: 5000, Machines: []Machine{shares("alone", 1024)}})
	s.until(time.Second)
	for range 100 {
		for _, name := range []string{"a", "b", "least", "most", "alone", "unknown"} {
			length := 30 * ms
			if len(name) == 1 {
				length = 4 * ms
			}
			s.b.Open(at(s.now), name, length)
			s.write()
			s.until(s.now + 4*ms)
			s.b.Close(at(s.now), name)
			s.write()
		}
	}
	if len(s.wrote) != 0 {
		t.Errorf("written: %v", s.wrote)
	}
}

// Two machines that take turns are raised for nearly all of their windows, and get the configured parts, for
// any weights.
func TestTurns(t *testing.T) {
	for _, c := range []struct{ a, b int64 }{{1024, 1024}, {1024, 3072}} {
		s := newStage(t, Pool{Name: "p", Machines: []Machine{shares("a", c.a), shares("b", c.b)}})
		s.until(200 * ms)
		before, began := s.ran["a"], s.now
		for range 100 {
			for _, name := range []string{"a", "b"} {
				s.b.Open(at(s.now), name, 30*ms)
				s.write()
				s.until(s.now + 30*ms)
				s.b.Close(at(s.now), name)
				s.write()
			}
		}
		for _, name := range []string{"a", "b"} {
			var sum time.Duration
			for _, r := range s.raised[name] {
				sum += r.to - r.from
			}
			t.Logf("%d to %d: %s is raised for %v of 3 s of windows, with %d writes", c.a, c.b, name, sum, len(s.wrote[name]))
			if sum < time.Second {
				t.Errorf("%s is raised for %v of 3 s of windows", name, sum)
			}
		}
		part := float64(s.ran["a"]-before) / float64(s.now-began)
		if want := float64(c.a) / float64(c.a+c.b); part < want-0.01 || part > want+0.01 {
			t.Errorf("a has %.3f of the CPU, not %.3f", part, want)
		}
	}
}

// A weight changed by another program is the new baseline, and is left alone for a second.
func TestChanged(t *testing.T) {
	s := newStage(t, Pool{Name: "p", Machines: []Machine{shares("a", 1024), shares("b", 1024)}})
	s.until(200 * ms)
	s.b.Open(at(s.now), "a", time.Hour)
	s.write()
	s.expect("in its window", map[string]int64{"a": 4096})
	s.has["a"], s.pools[0].Machines[0].Weight = 3000, 3000
	s.set(s.pools...)
	s.until(s.now + 990*ms)
	s.expect("changed", map[string]int64{"a": 3000})
	s.until(s.now + 20*ms)
	s.expect("raised again, from there", map[string]int64{"a": 12000})
	s.has["a"] = 3000 // another program undoes that
	s.set(s.pools...)
	s.until(s.now + 990*ms)
	s.expect("undone", map[string]int64{"a": 3000})
	s.until(s.now + 20*ms)
	s.expect("raised again", map[string]int64{"a": 12000})
	s.set() // no machine follows any more
	s.expect("given back", map[string]int64{"a": 3000, "b": 1024})
	if s.b.Next() != vcpu.Forever {
		t.Errorf("next %v", s.b.Next())
	}
}

// For any events of the gates: no machine is raised for more than half of any second, no weight is written
// twice in 5 ms, the CPU time of any second is as configured up to 5 % of all, and a fifth of its own and 5
// ms, and when all windows are over all has been given back.
func TestAnything(t *testing.T) {
	for seed := range uint64(150) {
		r := rand.New(rand.NewPCG(seed, 1))
		var machines []Machine
		for i := range 2 + r.IntN(4) {
			machines = append(machines, shares(fmt.Sprint("m", i), int64(16<<r.IntN(10))))
		}
		s := newStage(t, Pool{Name: "p", Others: int64(r.IntN(3) * 1024), Machines: machines})
		s.until(100 * ms)
		weights := s.pools[0].Others
		for _, m := range machines {
			weights += m.Weight
		}
		var seconds []map[string]time.Duration
		next := s.now
		for s.now < 12*time.Second {
			if s.now >= next {
				copied := map[string]time.Duration{}
				for k, v := range s.ran {
					copied[k] = v
				}
				seconds, next = append(seconds, copied), next+100*ms
			}
			name := machines[r.IntN(len(machines))].Domain
			switch r.IntN(8) {
			case 0, 1, 2:
				s.b.Open(at(s.now), name, time.Duration(r.IntN(200))*ms)
			case 3, 4:
				s.b.Close(at(s.now), name)
			case 5:
				s.set(s.pools...)
			}
			s.write()
			s.until(min(s.now+time.Duration(r.IntN(int(20*ms))), max(next, s.now)))
		}
		for _, m := range machines {
			for i := 10; i < len(seconds); i++ {
				got := seconds[i][m.Domain] - seconds[i-10][m.Domain]
				want := time.Second * time.Duration(m.Weight) / time.Duration(weights)
				if off := (got - want).Abs(); off > 2*(maxDebt+MinWindow) || off > 2*want/10+5*ms {
					t.Fatalf("seed %d: in the second to %v %s ran for %v, not %v", seed, time.Duration(i)*100*ms, m.Domain, got, want)
				}
			}
			checkRaised(t, seed, m.Domain, s.raised[m.Domain], s.now)
		}
		for _, m := range machines {
			s.b.Close(at(s.now), m.Domain)
		}
		s.write()
		s.until(s.now + 5*time.Second)
		for _, m := range machines {
			s.expect(fmt.Sprint("seed ", seed, ", in the end"), map[string]int64{m.Domain: m.Weight})
		}
		if s.b.Next() != vcpu.Forever {
			t.Fatalf("seed %d: next %v", seed, s.b.Next())
		}
	}
}

// checkRaised checks the seconds that begin, or end, with a raise: the greatest part is in one of them.
func checkRaised(t *testing.T, seed uint64, name string, all []span, now time.Duration) {
	t.Helper()
	within := func(from time.Duration) (sum time.Duration) {
		for _, r := range all {
			if r.to < 0 {
				r.to = now
			}
			sum += max(min(r.to, from+time.Second)-max(r.from, from), 0)
		}
		return sum
	}
	for _, r := range all {
		for _, from := range []time.Duration{r.from, r.to - time.Second} {
			if sum := within(from); r.to >= 0 && sum > time.Second/2 {
				t.Fatalf("seed %d: %s is raised for %v of the second from %v", seed, name, sum, from)
			}
		}
	}
}

// The same events give the same writes.
func TestDeterministic(t *testing.T) {
	run := func() (all []Write) {
		var b Boosts
		r := rand.New(rand.NewPCG(7, 7))
		pools := []Pool{{Name: "p", Machines: []Machine{shares("a", 1024), shares("b", 100), shares("c", 5000)}}}
		b.Set(0, pools)
		for now := vcpu.Time(0); now < at(5*time.Second); now += vcpu.Time(r.IntN(int(10 * ms))) {
			b.Open(now, string(rune('a'+r.IntN(3))), time.Duration(r.IntN(int(100*ms))))
			b.Close(now, string(rune('a'+r.IntN(3))))
			all = append(all, b.Writes(now)...)
		}
		return all
	}
	once, again := run(), run()
	if !slices.Equal(once, again) || len(once) < 20 {
		t.Errorf("%d and %d writes", len(once), len(again))
	}
}
