package schedule

import (
	"strings"
	"testing"

	"pegasus/hypervisor/xen/dump"
	"pegasus/hypervisor/xen/trace"
)

// part is the pool of a recording that a test uses, with its domains' shares: of a pair, theirs.
type part struct {
	pool   int
	cpus   []int
	shares map[uint16]Share
}

func (r *recording) part(name string) part {
	p := part{cpus: []int{0, 1}, shares: make(map[uint16]Share)}
	if strings.HasSuffix(name, "pair") {
		p = part{pool: 1, cpus: []int{1}, shares: p.shares}
	}
	for _, d := range r.dumps {
		for _, v := range d.VCPUs {
			if v.CPU >= p.cpus[0] {
				p.shares[v.ID.Domain] = Share{v.Weight, v.Cap}
			}
		}
	}
	if p.pool != 0 {
		delete(p.shares, 0)
	}
	return p
}

func (p part) shadow() *CreditModel {
	s := NewCreditModel(len(p.cpus), 30*ms)
	for domain, is := range p.shares {
		s.Share(domain, is)
	}
	return s
}

// may reports whether a vCPU may run on a CPU: a pool's domains stay on its CPUs.
func (p part) may(id trace.VCPU, cpu int) bool {
	_, ours := p.shares[id.Domain]
	return ours == (cpu >= p.cpus[0])
}

// agreement is the agreement of credits with the printed ones.
type agreement struct {
	n, signs int
	off      int64
}

func (a *agreement) add(ours, printed int64) {
	a.n++
	if (ours > 0) == (printed > 0) {
		a.signs++
	}
	a.off += max(ours-printed, printed-ours)
}

func (a *agreement) rate() float64 { return float64(a.signs) / float64(max(a.n, 1)) }

// Computed credits agree with the printed ones, in sign, after one print at the beginning. A print is compared with
// the credits computed before it.
func TestShadowOfRecordings(t *testing.T) {
	for _, c := range []struct {
		name  string
		seeds int     // number of prints that correct the credits
		signs float64 // required fraction of equal signs
		off   int64   // the most, in credits of 100 µs
	}{
		{"credit-mixed", 1, 0.95, 20}, {"credit-mixed", 100, 0.95, 20},
		{"credit-capped", 1, 0.8, 65}, {"credit-capped", 100, 0.95, 30},
		// In a pair no vCPU ever has so much credit that Xen records a hand-out.
		{"credit-pair", 1, 0.8, 50}, {"credit-pair", 100, 0.9, 30},
	} {
		r := load(t, c.name)
		p := r.part(c.name)
		s, dumps, dumped := p.shadow(), r.dumps, 0
		var a agreement
		thought := make(map[trace.VCPU]int64)
		for i := range r.records {
			at := r.clock.Nanos(r.records[i].At)
			if len(dumps) > 0 && dumps[0].from <= at && len(thought) == 0 {
				s.Until(dumps[0].from)
				for _, v := range dumps[0].VCPUs {
					thought[v.ID], _, _ = s.Credit(v.ID)
				}
			}
			if len(dumps) > 0 && dumps[0].to <= at {
				for _, v := range dumps[0].VCPUs {
					if _, ours := p.shares[v.ID.Domain]; ours && dumped > 0 {
						a.add(thought[v.ID], v.Credit)
					}
				}
				if dumped++; dumped <= c.seeds {
					s.Printed(dumps[0].Dump, p.pool, dumps[0].from, dumps[0].to)
				}
				dumps = dumps[1:]
				clear(thought)
			}
			s.Take(at, &r.records[i])
		}
		t.Logf("%s, told %d times: the sign agrees in %.3f of %d, %.1f ms off in the mean", c.name, c.seeds, a.rate(), a.n, float64(a.off)/float64(a.n)/10)
		if a.n < 30 || a.rate() < c.signs || a.off/int64(a.n) > c.off {
			t.Error("that is too little, or too far off")
		}
	}
}

// shadowed returns the shadow of a recording, and the function that makes it follow a history.
func (r *recording) shadowed(p part) (*CreditModel, func(*History)) {
	s, dumps, next := p.shadow(), r.dumps, 0
	return s, func(h *History) {
		for ; next < len(r.records) && r.clock.Nanos(r.records[next].At) <= h.Now(); next++ {
			s.Take(r.clock.Nanos(r.records[next].At), &r.records[next])
		}
		if len(dumps) > 0 && dumps[0].to < h.Now() {
			s.Printed(dumps[0].Dump, p.pool, dumps[0].from, dumps[0].to)
			dumps = dumps[1:]
		}
	}
}

// An invalid time doesn't cause endless hand-outs, and a print starts a pool without state.
func TestShadowBegins(t *testing.T) {
	s := NewCreditModel(1, 30*ms)
	s.Share(1, Share{Weight: 256})
	s.Take(1<<62, &trace.Record{Event: trace.AccountStart, N: 3, Words: [7]uint32{1}})
	s.Until(1<<62 + 100*ms)
	s = NewCreditModel(1, 30*ms)
	s.Share(1, Share{Weight: 256})
	d := &dump.Dump{
		Pools: []dump.Pool{{Handed: 7}}, CPUs: []dump.CPU{{Running: id(1)}},
		VCPUs: []dump.VCPU{{ID: id(1), Credit: 50, Priority: dump.Under, Earns: true}, {ID: id(2), Credit: 70}},
	}
	s.Until(90 * ms)
	s.Printed(d, 0, 100*ms, 101*ms)
	if credit, _, ok := s.Credit(id(1)); !ok || credit != 50 || !s.Synced() {
		t.Errorf("%d, %v", credit, ok)
	}
	if _, _, ok := s.Credit(id(2)); ok {
		t.Error("another pool's is known")
	}
	if unsure := s.Unsure(115 * ms); unsure < 15*ms {
		t.Errorf("it is sure to %d ns", unsure)
	}
	// It has been found running, and the hand-out was recorded.
	s.Take(110*ms, &trace.Record{Event: trace.PickedCPU, N: 3, Words: [7]uint32{1}})
	s.Take(112*ms, &trace.Record{Event: trace.AccountStop, N: 3, Words: [7]uint32{1}})
	if credit, priority, _ := s.Credit(id(1)); credit != 150 || priority != dump.Under {
		t.Errorf("%d, %d", credit, priority)
	}
	if s.Unsure(115*ms) != 0 || s.Hands() < 142*ms || s.Hands() > 143*ms {
		t.Errorf("credits come at %d", s.Hands())
	}
	s.Forget(1)
	if _, _, ok := s.Credit(id(1)); ok || len(s.active) != 0 {
		t.Error("it isn't forgotten")
	}
}

// Running time in a gap of records isn't subtracted, and credits are unknown until the next print.
func TestShadowOfLostRecords(t *testing.T) {
	s := NewCreditModel(1, 30*ms)
	s.Share(1, Share{Weight: 256})
	id := trace.VCPU{Domain: 1}
	printed := &dump.Dump{Pools: []dump.Pool{{}}, VCPUs: []dump.VCPU{{ID: id, Priority: dump.Under, Credit: 100, Weight: 256}}}
	s.Printed(printed, 0, 1*ms, 1*ms)
	change := func(at int64, from, to trace.Runstate) {
		r := trace.Record{Event: trace.Running | uint32(from)<<8 | uint32(to)<<4, N: 1}
		r.Words[0] = 1 << 16
		s.Take(at, &r)
	}
	change(10*ms, trace.Waits, trace.Runs)
	if s.Take(12*ms, &trace.Record{Event: trace.Lost}); s.Synced() {
		t.Error("what credit there is is known without what ran")
	}
	change(1012*ms, trace.Waits, trace.Runs)
	change(1013*ms, trace.Runs, trace.Waits)
	if credit, _, _ := s.Credit(id); credit != 90 {
		t.Errorf("%d credits are left of 100", credit)
	}
	if s.Printed(printed, 0, 1020*ms, 1021*ms); !s.Synced() {
		t.Error("what was printed isn't known")
	}
}
