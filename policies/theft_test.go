package policies

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// tricks are the ways in which a domain may try to get more than its part.
var tricks = []struct {
	name string
	make func(c *client)
}{
	{"leaves", func(c *client) { c.ends, c.away = leaves, ms }},
	{"stays-away", func(c *client) { c.ends, c.away = leaves, 150*ms }},
	{"dies", func(c *client) { c.ends, c.away = dies, ms }},
	{"changes-context", func(c *client) { c.ends = changes }},
}

// shared are the policies under which backlogged domains have parts by credits.
var shared = []string{"rr", "accc", "xc", "slaf", "augc", "cosched", "credit", "band", "drr", "lag"}

// heist runs a thief with so many processes, each of which keeps a request in flight that is predicted short,
// beside a backlogged victim. It returns the time of each.
func heist(t *testing.T, name string, processes int, credits [2]int, kernel time.Duration, span time.Duration, vary func(*client)) (victim, thief time.Duration) {
	m := newModel(mustNew(t, name, Production), 1)
	m.beat = 10 * ms
	v := &client{id: 1, credits: credits[0], cpu: credits[0], kernels: []time.Duration{2 * ms}}
	c := &client{id: 2, credits: credits[1], cpu: credits[1], kernels: []time.Duration{kernel}, claims: ms, pile: processes, from: Time(100 * ms)}
	if vary != nil {
		vary(c)
	}
	m.add(v)
	m.add(c)
	m.run(Time(span))
	return v.used, c.used
}

// TestNothingIsStolen: a thief that leaves and comes back, dies, or changes its context,
// with work far beyond its window, gets no more than a thief that stays. Under policies with
// shares a backlogged victim keeps 95 % of its part. Only the thief's last
// burst may be outstanding at the end.
func TestNothingIsStolen(t *testing.T) {
	const span = 60 * time.Second
	for _, name := range Names() {
		for _, c := range []struct {
			processes int
			credits   [2]int
		}{{1, [2]int{256, 256}}, {64, [2]int{256, 256}}, {8, [2]int{768, 256}}, {1, [2]int{100, 900}}, {16, [2]int{100, 900}}} {
			// The processes' requests together take longer than any window.
			kernel := max(time.Second/time.Duration(c.processes), 100*ms)
			burst := kernel * time.Duration(max(c.processes, 2))
			_, most := heist(t, name, c.processes, c.credits, kernel, span, nil)
			for _, trick := range tricks {
				t.Run(fmt.Sprintf("%s/%d/%d:%d/%s", name, c.processes, c.credits[0], c.credits[1], trick.name), func(t *testing.T) {
					victim, thief := heist(t, name, c.processes, c.credits, kernel, span, trick.make)
					if thief > most+burst {
						t.Errorf("the thief got %v, and %v if it stays", thief, most)
					}
					part := span * time.Duration(c.credits[0]) / time.Duration(c.credits[0]+c.credits[1])
					if name == "rr" {
						part = span / 2
					}
					if least := part*95/100 - burst; slices.Contains(shared, name) && victim < least {
						t.Errorf("the victim got %v of %v (the thief got %v)", victim, part, thief)
					}
				})
			}
		}
	}
}

// TestLongKernelsOfQuitters: where a request is charged only when it has ended, as on a GPU, a thief that leaves after each long
// kernel gets no more than its half.
func TestLongKernelsOfQuitters(t *testing.T) {
	for _, name := range shared {
		for _, kernel := range []time.Duration{50 * ms, 300 * ms} {
			for _, ends := range []ending{stays, leaves} {
				m := newModel(mustNew(t, name, Production), 1)
				v := &client{id: 1, credits: 256, cpu: 256, kernels: of(2 * ms)}
				c := &client{id: 2, credits: 256, cpu: 256, kernels: of(kernel), ends: ends, away: ms, from: Time(100 * ms)}
				m.add(v)
				m.add(c)
				m.run(Time(60 * time.Second))
				if v.used < 28*time.Second {
					t.Errorf("%s, kernels of %v, ending %d: the victim got %v of 30s", name, kernel, ends, v.used)
				}
			}
		}
	}
}

// TestBurstsAreRepaid: bursts of any length are repaid in full: the victim has its half soon after, whether
// the thief stays or leaves.
func TestBurstsAreRepaid(t *testing.T) {
	for _, name := range shared {
		for _, burst := range []time.Duration{15 * time.Second, 40 * time.Second, 100 * time.Second} {
			for _, ends := range []ending{stays, leaves} {
				m := newModel(mustNew(t, name, Production), 1)
				m.beat = 10 * ms
				v := &client{id: 1, credits: 256, kernels: []time.Duration{2 * ms}}
				c := &client{id: 2, credits: 256, kernels: []time.Duration{burst, 2 * ms}, claims: ms, ends: ends, away: ms, from: Time(100 * ms)}
				c.kernels = append(c.kernels, slices.Repeat([]time.Duration{2 * ms}, 10000)...)
				m.add(v)
				m.add(c)
				m.run(Time(2*burst + 5*time.Second))
				if part := burst + 2*time.Second; v.used < part*95/100 {
					t.Errorf("%s, a burst of %v, ending %d: the victim got %v of %v", name, burst, ends, v.used, part)
				}
			}
		}
	}
}
