package policies

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// TestRandomShares lets random backlogged domains compete: in production mode each gets its part of the
// accelerator's time, and none waits for ever.
func TestRandomShares(t *testing.T) {
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 2))
		m := randomModel(t, "accc", rng, seed)
		m.run(Time(2 * time.Second))
		m.measure()
		m.run(Time(22 * time.Second))
		sum := 0
		for _, c := range m.domains {
			sum += c.credits
		}
		got := m.shares()
		for _, c := range m.domains {
			want := 100 * float64(c.credits) / float64(sum)
			if math.Abs(got[c.id]-want) > 1 {
				t.Errorf("seed %d: domain %d with %d of %d credits got %.2f %%, not %.2f %%", seed, c.id, c.credits, sum, got[c.id], want)
			}
			// A rotation or two, and one for each that its longest burst costs.
			quantum := time.Duration(float64(time.Second) * float64(c.credits) / float64(sum))
			if bound := 3*time.Second + (60*ms/quantum+1)*time.Second; m.longest[c.id] > bound {
				t.Errorf("seed %d: domain %d waited %v", seed, c.id, m.longest[c.id])
			}
		}
		// The engine idles when the next gate opens later than the last request ends.
		if most := Time(len(m.log)) * Time(m.latency) / 2; m.gaps > most {
			t.Errorf("seed %d: the engine idled %v", seed, time.Duration(m.gaps))
		}
	}
}

// randomModel has two to nine backlogged domains with kernels of 0.1 to 30 ms.
func randomModel(t *testing.T, policy string, rng *rand.Rand, seed uint64) *model {
	p, err := New(policy, Defaults(Production))
	if err != nil {
		t.Fatal(err)
	}
	m := newModel(p, seed)
	m.latency = time.Duration(rng.Int64N(int64(ms)))
	for id := range ID(2 + rng.IntN(8)) {
		c := &client{id: id, credits: 100 + rng.IntN(1500)}
		for range 1 + rng.IntN(4) {
			c.kernels = append(c.kernels, 100*time.Microsecond+time.Duration(rng.Int64N(int64(30*ms)))>>rng.IntN(6))
		}
		m.add(c)
	}
	return m
}

// TestNamesDoNotMatter gives the same domains other ids: each gets the same time as before, at the same
// times.
func TestNamesDoNotMatter(t *testing.T) {
	run := func(name string, rename map[ID]ID, mode Mode) (string, map[ID]time.Duration) {
		m := newModel(mustNew(t, name, mode), 1)
		m.cpus = &cpus{n: 1}
		for i, kernel := range []time.Duration{5 * ms, ms, 25 * ms} {
			c := &client{id: rename[ID(i)], credits: 256 << i, cpu: 1024 >> i, kernels: []time.Duration{kernel}}
			c.promise.SLO = 300 * i
			m.add(c)
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
	for _, name := range []string{"accc", "xc", "slaf", "augc", "cosched"} {
		for _, mode := range []Mode{Production, Paper} {
			log, used := run(name, map[ID]ID{0: 0, 1: 1, 2: 2}, mode)
			otherLog, otherUsed := run(name, map[ID]ID{0: 7, 1: 3, 2: 5}, mode)
			if log != otherLog || !maps.Equal(used, otherUsed) {
				t.Errorf("%s, %v mode: with other ids %v instead of %v", name, mode, otherUsed, used)
			}
		}
	}
}

// TestReplay plays the events of a run again, without the model: the decisions
// are the same.
func TestReplay(t *testing.T) {
	for _, name := range Names() {
		for _, mode := range []Mode{Production, Paper} {
			p, q := mustNew(t, name, mode), mustNew(t, name, mode)
			m := newModel(p, 3)
			m.record, m.cpus = true, &cpus{n: 2}
			for i := range ID(5) {
				m.add(&client{id: i, credits: 256 << (i % 3), kernels: []time.Duration{ms << i}, burst: int(i), think: time.Duration(i) * 7 * ms})
			}
			m.run(Time(5 * time.Second))
			if again := replay(NewScheduler(q), m.trace); !slices.Equal(again, m.log) {
				t.Errorf("%s, %v: played again, the decisions differ", name, mode)
			}
		}
	}
}

func mustNew(t *testing.T, name string, mode Mode) Policy {
	p, err := New(name, Defaults(mode))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func replay(s *Scheduler, trace []step) []Action {
	var log []Action
	for _, st := range trace {
		if st.ready {
			log = append(log, s.Ready(st.at)...)
			continue
		}
		s.Step(st.at, &st.event)
	}
	return log
}
