package cpus

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"pegasus/hypervisor/xen/control"
	"pegasus/hypervisor/xen/trace"
	"pegasus/vcpu"
)

// fakeTrace is the trace of a hypervisor with one CPU, and its clock, of which a tick is 1 ns.
type fakeTrace struct {
	now     int64
	records []byte
	failed  error
	closed  int
	back    time.Duration // by so much its clock was set back
}

func (p *fakeTrace) Read(emit func(cpu int, records []byte, lost bool)) {
	emit(0, p.records, false)
	p.records = nil
}

func (p *fakeTrace) Close() error { p.closed++; return nil }

func (p *fakeTrace) follow() *trace.Follower {
	return trace.Follow(func() trace.Instant { return trace.Instant{Ticks: uint64(p.now - int64(p.back)), Nanos: p.now} },
		func() (trace.Source, error) { return p, p.failed })
}

func (p *fakeTrace) note(at time.Duration, event uint32, words ...uint32) {
	r := trace.Record{Event: event, At: uint64(at - p.back), N: len(words)}
	copy(r.Words[:], words)
	p.records = trace.Append(p.records, &r)
}

// state records a transition of a domain's vCPU.
func (p *fakeTrace) state(at time.Duration, domain uint32, from, to trace.Runstate) {
	p.note(at, trace.Running|uint32(from)<<8|uint32(to)<<4, domain<<16)
}

// printing is a hypervisor that prints dumps, too.
type printing struct {
	*fake
	text   string
	fails  error
	prints int
	done   bool
}

func (p *printing) Press(string) error {
	p.prints++
	p.done = false
	return p.fails
}

func (p *printing) Console(from uint32) ([]byte, uint32, error) {
	if p.prints == 0 || p.done {
		return nil, from, nil
	}
	p.done = true
	return []byte(p.text), from + uint32(len(p.text)), nil
}

const creditPrints = `(XEN) NOW=100
(XEN) Cpupool 0:
(XEN) Scheduler: SMP Credit Scheduler (credit)
(XEN) 	master             = 0
(XEN) 	credit balance     = 20
(XEN) 	runq_sort          = 7
(XEN) active units:
(XEN) 	  1: [1.0] pri=-1 flags=0 cpu=0 credit=120 [w=256,cap=0]
(XEN) 	  2: [2.0] pri=-2 flags=0 cpu=0 credit=-100 [w=256,cap=0]
(XEN) CPUs info:
(XEN) CPU[00] nr_run=2, sort=7, sibling={0}, core={0}
(XEN) 	run: [1.0] pri=-1 flags=0 cpu=0 credit=120 [w=256,cap=0]
`

// lookAt calls Look for two domains at a time.
func (f *fake) lookAt(t *testing.T, c *CPUs, p *fakeTrace, at time.Duration) []vcpu.Schedule {
	t.Helper()
	p.now, f.now = int64(at), time.Unix(1000, 0).Add(at)
	seen, _ := c.Look(vcpu.Time(at), 10*time.Millisecond, guests(1, 2))
	return seen
}

// By the trace, the credit is the one in the hypervisor's dump, less the credit burnt since; dumps are requested as
// long as a hand-out may have been missed, and not all the time.
func TestTracedCredit(t *testing.T) {
	f := newFake()
	f.pool(control.Credit, 0)
	f.domain(1, 0, 256, 1)
	f.domain(2, 0, 256, 1)
	x := &printing{fake: f, text: creditPrints}
	c := NewCPUs(x, discard)
	c.clock, c.mine = func() time.Time { return f.now }, func() int { return -1 }
	var p fakeTrace
	c.Trace(p.follow())
	c.Print(x)
	const ms = time.Millisecond
	f.lookAt(t, c, &p, 100*ms)
	p.state(101*ms, 1, trace.Waits, trace.Runs)
	f.lookAt(t, c, &p, 105*ms) // this look requests a dump
	if x.prints != 1 {
		t.Fatalf("it is asked %d times", x.prints)
	}
	p.note(107*ms, trace.PickedCPU, 1, 0, 0)
	seen := f.lookAt(t, c, &p, 110*ms)
	if seen[0].Remaining != 60 || seen[1].Remaining != -100 {
		t.Errorf("%d and %d are left", seen[0].Remaining, seen[1].Remaining)
	}
	p.note(112*ms, trace.Continues, 1<<16)
	seen = f.lookAt(t, c, &p, 115*ms)
	if seen[0].Remaining != 10 || seen[1].Remaining != -100 {
		t.Errorf("%d and %d are left", seen[0].Remaining, seen[1].Remaining)
	}
	for at := 120 * ms; at < time.Second; at += 10 * ms {
		f.lookAt(t, c, &p, at)
	}
	if x.prints > 10 {
		t.Errorf("it is asked %d times", x.prints)
	}
	c.Close()
	if p.closed != 1 {
		t.Errorf("the trace is closed %d times", p.closed)
	}
}

// Under Credit2 the trace has the credits, and no dump is requested.
func TestTracedCredit2(t *testing.T) {
	f := newFake()
	f.pool(control.Credit2, 0)
	f.domain(1, 0, 256, 1)
	f.domain(2, 0, 256, 1)
	x := &printing{fake: f}
	c := NewCPUs(x, discard)
	c.clock, c.mine = func() time.Time { return f.now }, func() int { return -1 }
	var p fakeTrace
	c.Trace(p.follow())
	const ms = time.Millisecond
	f.lookAt(t, c, &p, 100*ms)
	p.state(101*ms, 1, trace.Waits, trace.Runs)
	p.state(101*ms, 2, trace.Runs, trace.Waits)
	p.note(102*ms, trace.CreditBurn, 1<<16, 4000000, 0, 1000000)
	p.note(102*ms, trace.CreditBurn, 2<<16, uint32(0xffffffff-999999), 0, 1000000)
	seen := f.lookAt(t, c, &p, 110*ms)
	if seen[0].Remaining != 40 || seen[1].Remaining != -10 || x.prints != 0 {
		t.Errorf("%d and %d are left, asked %d times", seen[0].Remaining, seen[1].Remaining, x.prints)
	}
	was := c.Spent(guests(2))[0].Waited
	if next := seen[0].VCPUs[0].Next + seen[1].VCPUs[0].Next; next < 990 || next > 1000 {
		t.Errorf("both together run for %d ‰", next)
	}
	p.state(118*ms, 1, trace.Runs, trace.Waits)
	p.state(118*ms, 2, trace.Waits, trace.Runs)
	f.lookAt(t, c, &p, 130*ms)
	// From the last recorded time at 110 ms, which is 102, it waited until 118.
	if waited := c.Spent(guests(2))[0].Waited - was; waited != 16*ms {
		t.Errorf("it waited for %v more", waited)
	}
	if asked, right, asNow := c.Foretold(); asked != 1 || right > 1 || asNow != 1 {
		t.Errorf("of %d foretold %d were right, and %d as it was", asked, right, asNow)
	}
}

// Without a trace, or without dumps, the accounts are used.
func TestWithoutTrace(t *testing.T) {
	f := newFake()
	f.pool(control.Credit, 0)
	f.domain(1, 0, 256, 1)
	f.domain(2, 0, 256, 1)
	for _, p := range []*fakeTrace{{failed: errors.New("no buffers")}, {}} {
		x := &printing{fake: f, fails: errors.New("no such key")}
		c := NewCPUs(x, discard)
		c.clock, c.mine = func() time.Time { return f.now }, func() int { return -1 }
		c.Trace(p.follow())
		for at := 100 * time.Millisecond; at < time.Second; at += 10 * time.Millisecond {
			if seen := f.lookAt(t, c, p, at); len(seen[0].VCPUs) != 1 {
				t.Fatal("nothing is seen")
			}
		}
		if x.prints > 1 {
			t.Errorf("it is asked %d times", x.prints)
		}
		c.Close()
	}
}

// When another program has switched tracing off, or the CPUs' clock was set back, the earlier state is dropped; the
// trace is started anew, and that is logged once.
func TestTraceThatStops(t *testing.T) {
	f := newFake()
	f.pool(control.Credit2, 0)
	f.domain(1, 0, 256, 1)
	f.domain(2, 0, 256, 1)
	var said bytes.Buffer
	c := NewCPUs(f, slog.New(slog.NewTextHandler(&said, nil)))
	c.clock, c.mine = func() time.Time { return f.now }, func() int { return -1 }
	var p fakeTrace
	c.Trace(p.follow())
	const ms, s = time.Millisecond, time.Second
	burn := func(at time.Duration) int64 {
		t.Helper()
		p.note(at, trace.CreditBurn, 1<<16, 4000000, 0, 1000000)
		return f.lookAt(t, c, &p, at+ms)[0].Remaining
	}
	f.lookAt(t, c, &p, 100*ms)
	if left := burn(110 * ms); left != 40 {
		t.Fatalf("%d are left", left)
	}
	for at := s; at < 20*s; at += 500 * ms {
		f.lookAt(t, c, &p, at)
	}
	if c.domains[1].vcpus[0].exact || p.closed == 0 || p.closed > 10 || strings.Count(said.String(), "\n") != 1 {
		t.Errorf("what was known is still, the trace was closed %d times, and it was said that\n%s", p.closed, &said)
	}
	f.lookAt(t, c, &p, 20*s)
	f.lookAt(t, c, &p, 20*s+100*ms)
	burn(20*s + 200*ms)
	if left := burn(20*s + 300*ms); left != 40 || !c.domains[1].vcpus[0].exact {
		t.Errorf("%d are left", left)
	}
	closed := p.closed
	p.back = 19 * s
	f.lookAt(t, c, &p, 20*s+400*ms)
	if c.domains[1].vcpus[0].exact || p.closed != closed+1 {
		t.Errorf("by a clock that was set back it is known what is left, and the trace was closed %d times", p.closed-closed)
	}
	f.lookAt(t, c, &p, 20*s+500*ms)
	f.lookAt(t, c, &p, 20*s+600*ms)
	if left := burn(20*s + 700*ms); left != 40 {
		t.Errorf("%d are left", left)
	}
}

// The records of an ended domain don't keep its state for ever.
func TestTraceOfTheDead(t *testing.T) {
	f := newFake()
	f.pool(control.Credit2, 0)
	f.domain(1, 0, 256, 1)
	c := NewCPUs(f, discard)
	c.clock, c.mine = func() time.Time { return f.now }, func() int { return -1 }
	var p fakeTrace
	c.Trace(p.follow())
	const ms = time.Millisecond
	f.lookAt(t, c, &p, 10*ms)
	f.lookAt(t, c, &p, 20*ms)
	for n := range time.Duration(100) {
		id, at := uint16(n+2), (30+20*n)*ms
		f.domain(id, 0, 256, 1)
		p.state(at, uint32(id), trace.Waits, trace.Runs)
		f.lookAt(t, c, &p, at+ms)
		f.remove(id)
		p.state(at+2*ms, uint32(id), trace.Runs, trace.Offline)
		f.lookAt(t, c, &p, at+10*ms)
	}
	if known := c.traced.history.VCPUs(); len(known) > 1 {
		t.Errorf("%d vCPUs are known, of one", len(known))
	}
}

// A prediction for an unknown vCPU is neither a hit nor a miss: neither where no record has named the running vCPU yet,
// nor where records were lost since.
func TestForetoldUnknown(t *testing.T) {
	f := newFake()
	f.pool(control.Credit2, 0)
	f.domain(1, 0, 256, 1)
	f.domain(2, 0, 256, 1)
	c := NewCPUs(f, discard)
	c.clock, c.mine = func() time.Time { return f.now }, func() int { return -1 }
	var p fakeTrace
	c.Trace(p.follow())
	const ms = time.Millisecond
	foretold := func(want int) {
		t.Helper()
		if asked, right, asNow := c.Foretold(); asked != want || right > asked || asNow > asked {
			t.Errorf("of %d foretold %d were right, and %d as it was; wanted %d", asked, right, asNow, want)
		}
	}
	f.lookAt(t, c, &p, 100*ms)
	for at := 110 * ms; at < 200*ms; at += 10 * ms {
		p.note(at-ms, trace.Wake, 1, 0) // the running vCPU isn't recorded
		f.lookAt(t, c, &p, at)
	}
	foretold(0)
	p.state(201*ms, 1, trace.Waits, trace.Runs)
	f.lookAt(t, c, &p, 210*ms) // predicts 206 ms, from the state at 201
	p.note(205*ms, trace.Lost, 5, 0, uint32(205*ms), 0)
	p.note(219*ms, trace.Wake, 1, 0)
	f.lookAt(t, c, &p, 220*ms)
	p.note(229*ms, trace.Wake, 1, 0)
	f.lookAt(t, c, &p, 230*ms)
	foretold(0)
	p.state(231*ms, 1, trace.Waits, trace.Runs)
	f.lookAt(t, c, &p, 240*ms)
	p.note(249*ms, trace.Continues, 1<<16)
	f.lookAt(t, c, &p, 250*ms)
	foretold(1)
}

// After a long time without a look, in which records are lost, waiting times are estimated from samples.
func TestWaitedInAGap(t *testing.T) {
	f := newFake()
	f.pool(control.Credit2, 0)
	f.domain(1, 0, 256, 1)
	f.domain(2, 0, 256, 1)
	f.runs(1, 0, 0)
	f.waits(2, 0, 0)
	c := NewCPUs(f, discard)
	c.clock, c.mine = func() time.Time { return f.now }, func() int { return -1 }
	var p fakeTrace
	c.Trace(p.follow())
	f.lookAt(t, c, &p, 100*ms)
	p.state(101*ms, 1, trace.Waits, trace.Runs)
	p.state(101*ms, 2, trace.Runs, trace.Waits)
	f.lookAt(t, c, &p, 110*ms)
	was := c.Spent(guests(2))[0].Waited
	for range 180 {
		f.pass(10 * ms)
		c.Spent(guests(2))
	}
	seen := c.Spent(guests(2))[0].Waited - was
	if seen < 1700*ms || seen > 1900*ms {
		t.Fatalf("it is seen to wait for %v", seen)
	}
	p.note(1910*ms, trace.Lost, 5, 1, uint32(120*ms), 0)
	p.state(1911*ms, 2, trace.Runs, trace.Waits)
	f.lookAt(t, c, &p, 1915*ms)
	if waited := c.Spent(guests(2))[0].Waited - was; waited < seen || waited > seen+20*ms {
		t.Errorf("it has waited for %v, and was seen to for %v", waited, seen)
	}
}
