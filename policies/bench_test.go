package policies

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pegasus/vcpu"
)

// timed are the policies that decide more often than once per domain.
var timed = slices.DeleteFunc(Names(), func(name string) bool { return name == "none" })

// BenchmarkDecision measures one turn of the scheduler: the end of a lease, its use, and the next lease.
// Besides the mean it reports the 99th percentile.
func BenchmarkDecision(b *testing.B) {
	for _, name := range timed {
		for _, mode := range []Mode{Production, Paper} {
			for _, n := range []int{8, 64, 10_000} {
				b.Run(fmt.Sprintf("%s/%s/%d", name, mode, n), func(b *testing.B) { benchDecision(b, name, mode, n) })
			}
		}
	}
}

func benchDecision(b *testing.B, name string, mode Mode, n int) {
	c := newCrowd(b, name, mode, n)
	took := make([]time.Duration, 0, 1<<20)
	b.ReportAllocs()
	for b.Loop() {
		c.ask()
		start := time.Now()
		c.turn()
		if len(took) < cap(took) {
			took = append(took, time.Since(start))
		}
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds()), "p99-ns")
}

// crowd is a scheduler of n domains that all have work.
type crowd struct {
	s      *Scheduler
	n      ID
	now    Time
	holder ID
	seq    uint64
	seen   *vcpu.Sample
}

func newCrowd(tb testing.TB, name string, mode Mode, n int) *crowd {
	p, err := New(name, Defaults(mode))
	if err != nil {
		tb.Fatal(err)
	}
	c := &crowd{s: NewScheduler(p), n: ID(n)}
	for id := range c.n {
		d := Domain{ID: id, Credits: Credits(256 << (id % 3)), CPU: Credits(256 << (id % 5))}
		d.Promise.Priority = int(id % 7)
		c.s.Step(0, &Event{Kind: Attach, Domain: d})
		c.s.Step(0, &Event{Kind: Wake, Domain: d, Signal: ContextOpened})
		c.asks(id)
	}
	c.seen = c.sample()
	c.s.Step(0, &Event{Kind: Observe, Sample: c.seen})
	c.ready()
	return c
}

// sample returns a sample in which the vCPUs of 16 domains, or of all, run.
func (c *crowd) sample() *vcpu.Sample {
	s := &vcpu.Sample{At: c.now, Quality: vcpu.Exact}
	for id := range min(c.n, 16) {
		v := vcpu.VCPU{State: vcpu.Running}
		s.Domains = append(s.Domains, vcpu.Schedule{ID: id, Remaining: int64(id) * 20, VCPUs: []vcpu.VCPU{v}})
	}
	return s
}

// asks gives a domain work.
func (c *crowd) asks(id ID) {
	c.seq++
	d := Domain{ID: id}
	c.s.Step(c.now, &Event{Kind: Wake, Domain: d, Signal: Arrived})
	r := Request{Seq: c.seq, Predicted: time.Duration(c.seq%13) * ms, Known: true}
	c.s.Step(c.now, &Event{Kind: Head, Domain: d, Class: Compute, Request: r})
}

// ask submits the holder's next request and the next sample.
func (c *crowd) ask() {
	c.asks(c.holder)
	c.seen.At = c.now
	c.s.Step(c.now, &Event{Kind: Observe, Sample: c.seen})
}

// turn ends the holder's lease, when the scheduler decides or when all of it was used.
func (c *crowd) turn() {
	if next := c.s.Next(); next < Forever {
		c.now = next
	} else {
		c.now = c.now.Add(30 * ms)
	}
	// Measured times are no multiples of each other.
	used := Usage{Compute: 31*ms + time.Duration(c.seq*7919%7_000_003), Requests: 32}
	c.s.Step(c.now, &Event{Kind: Charge, Domain: Domain{ID: c.holder}, Used: used})
	c.ready()
}

// ready tracks the open gate.
func (c *crowd) ready() {
	if actions := c.s.Ready(c.now); len(actions) > 0 {
		c.holder = actions[len(actions)-1].Domain
	}
}

// TestDecisionsDoNotAllocate counts the allocations of a turn, once everything has grown to its size. In a
// short run, such as under the race detector, which has one goroutine to watch here, there are fewer domains.
func TestDecisionsDoNotAllocate(t *testing.T) {
	domains := 10_000
	if testing.Short() {
		domains = 1000
	}
	for _, name := range timed {
		for _, mode := range []Mode{Production, Paper} {
			c := newCrowd(t, name, mode, domains)
			turn := func() {
				c.ask()
				other := (c.holder + 1) % c.n
				c.s.Step(c.now, &Event{Kind: Wake, Domain: Domain{ID: other}, Signal: Drained})
				c.asks(other)
				c.turn()
			}
			if a := testing.AllocsPerRun(1000, turn); a > 0 {
				t.Errorf("%s, %v: %v allocations per turn", name, mode, a)
			}
		}
	}
}
