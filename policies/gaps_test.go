package policies

import (
	"slices"
	"testing"
	"time"
)

// longestGap is the longest time that a backlogged domain with half of the credits may wait for the engine
// beside one other domain: 50 ms, less a margin for delays that the model omits.
const longestGap = 45 * ms

// prompt are the policies under which longestGap holds, with default options.
var prompt = []string{"rr", "accc", "xc", "slaf", "augc", "cosched", "credit", "band", "drr", "lag"}

// attackers are behaviours of a domain beside a backlogged victim. Requests are stopped at the end of a turn,
// as in the software accelerator, except those that begin before the time whole.
var attackers = []struct {
	name string
	from time.Duration // start of the measurement
	make func(c *client)
}{
	{"backlogged", 0, func(c *client) { c.kernels = of(2 * ms) }},
	{"never-ending kernels", 0, func(c *client) { c.kernels = of(time.Hour) }},
	{"leaves after each kernel", 0, func(c *client) { c.kernels, c.ends, c.away = of(100*ms), leaves, ms }},
	{"leaves for longer", 0, func(c *client) { c.kernels, c.ends, c.away = of(300*ms), leaves, 50*ms }},
	{"dies", 0, func(c *client) { c.kernels, c.ends, c.away = of(600*ms), dies, 10*ms }},
	{"changes its context", 0, func(c *client) { c.kernels, c.ends = of(300*ms), changes }},
	{"many processes", 0, func(c *client) { c.kernels, c.pile = of(50*ms), 8 }},
	{"rests between bursts", 0, func(c *client) { c.kernels, c.burst, c.think = of(ms), 400, 15*ms }},
	{"waits for each answer", 0, func(c *client) { c.kernels, c.burst, c.think = of(ms), 1, 3*ms }},
	{"asks for little, then for all", 0, func(c *client) { c.kernels, c.burst, c.think, c.greedy = of(ms/2), 1, 10*ms, Time(3*time.Second) }},
	{"a burst of 15 s", 16 * time.Second, func(c *client) {
		c.kernels, c.whole = append(of(15*time.Second), slices.Repeat(of(2*ms), 10000)...), Time(time.Second)
	}},
	{"a burst of 15 s, then leaves", 16 * time.Second, func(c *client) {
		c.kernels, c.whole = append(of(15*time.Second), slices.Repeat(of(2*ms), 10000)...), Time(time.Second)
		c.ends, c.away = leaves, ms
	}},
}

func of(kernels ...time.Duration) []time.Duration { return kernels }

// beside runs an attacker beside a victim that always has 30 kernels of 1 ms queued, on an engine that stops
// requests.
func beside(t *testing.T, name string, attack func(*client)) (m *model, victim, thief *client) {
	m = newModel(mustNew(t, name, Production), 1)
	m.slice = 2 * ms
	victim = &client{id: 1, credits: 256, cpu: 256, kernels: of(ms), pile: 30}
	thief = &client{id: 2, credits: 256, cpu: 256, claims: ms, from: Time(100 * ms)}
	attack(thief)
	if thief.greedy > 0 {
		m.scripts = append(m.scripts, script{thief.greedy, func(*model) { thief.think, thief.burst, thief.left = 2, 1<<40, 1<<40 }})
	}
	m.add(victim)
	m.add(thief)
	return m, victim, thief
}

// TestVictimsGap: for any behaviour, savings and debt of a domain, a backlogged victim of the same credits
// never waits for longer than longestGap between two of its turns. Nor does the domain that was in debt, once
// it has repaid that.
func TestVictimsGap(t *testing.T) {
	for _, name := range prompt {
		for _, a := range attackers {
			t.Run(name+"/"+a.name, func(t *testing.T) {
				m, victim, thief := beside(t, name, a.make)
				m.run(Time(a.from + 200*ms))
				m.measure()
				m.run(Time(a.from + 20*time.Second))
				if gap := m.gap(victim); gap > longestGap {
					t.Errorf("the victim waited %v", gap)
				}
				if got := m.shares()[1]; got < 49 {
					t.Errorf("the victim got %.1f %%", got)
				}
				if thief.whole == 0 {
					return
				}
				m.run(Time(a.from + 24*time.Second))
				m.measure()
				m.run(Time(a.from + 28*time.Second))
				if gap := m.gap(thief); gap > longestGap && thief.ends == stays {
					t.Errorf("a domain that has repaid its debt waited %v", gap)
				}
				if got := m.shares()[1]; got > 51 && thief.ends == stays {
					t.Errorf("beside a domain that has repaid its debt the victim got %.1f %%", got)
				}
				if all := m.now.Sub(0); victim.used < all*48/100 || victim.used > all*52/100 && thief.ends == stays {
					t.Errorf("the victim got %v of %v in all", victim.used, all)
				}
			})
		}
	}
}

// TestVictimsGapAmongThree: beside two others a victim waits for longestGap for each of them, also when all but the debtor are owed
// time from a burst that held up their windows.
func TestVictimsGapAmongThree(t *testing.T) {
	for _, name := range prompt {
		for _, a := range attackers {
			t.Run(name+"/"+a.name, func(t *testing.T) {
				m, victim, _ := beside(t, name, a.make)
				m.add(&client{id: 3, credits: 256, cpu: 256, kernels: of(ms), pile: 30})
				m.run(Time(a.from + 200*ms))
				m.measure()
				m.run(Time(a.from + 20*time.Second))
				if gap := m.gap(victim); gap > 2*longestGap {
					t.Errorf("the victim waited %v", gap)
				}
				if got := m.shares()[1]; got < 33 {
					t.Errorf("the victim got %.1f %%", got)
				}
			})
		}
	}
}

// TestLAGRepaysOverRotations: a kernel of the victim's runs for 100 ms, because its processor was taken away.
// The other domain gets that time back, though not at once: the victim does not wait for as long.
func TestLAGRepaysOverRotations(t *testing.T) {
	m, victim, _ := beside(t, "lag", func(c *client) { c.kernels = of(time.Hour) })
	victim.kernels = append(slices.Repeat(of(ms), 500), 100*ms)
	victim.whole = never
	m.run(Time(200 * ms))
	m.measure()
	m.run(Time(20 * time.Second))
	if gap := m.gap(victim); gap > longestGap {
		t.Errorf("the victim waited %v", gap)
	}
	if got := m.shares()[1]; got < 49 || got > 51 {
		t.Errorf("the victim got %.1f %%", got)
	}
}

// TestLAGTurnsStay: domains that are never far behind each other have no short turns, since these cost switches.
func TestLAGTurnsStay(t *testing.T) {
	for _, kernel := range []time.Duration{ms / 10, ms, 2 * ms} {
		for _, n := range []ID{2, 3, 8} {
			p := mustNew(t, "lag", Production)
			m := newModel(p, 1)
			for id := range n {
				m.add(&client{id: id, credits: 100 << (id % 4), kernels: of(kernel, kernel/2)})
			}
			for m.now < Time(5*time.Second) {
				m.run(m.now.Add(ms / 10))
				if p.(*lag).short {
					t.Fatalf("%d domains with kernels of %v: there is a short turn at %v", n, kernel, time.Duration(m.now))
				}
			}
		}
	}
}
