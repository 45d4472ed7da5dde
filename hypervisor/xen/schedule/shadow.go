package schedule

import (
	"math"
	"slices"

	"pegasus/hypervisor/xen/dump"
	"pegasus/hypervisor/xen/trace"
)

// Shadow is the credit that vCPUs of a pool have left under Credit, which the hypervisor doesn't
// tell in its trace: computed again, from the records of what it did.
//
// Xen takes off what a vCPU burns at each of its CPU's ticks and whenever it decides who runs
// there; both are in the trace, so that is exact. It hands out credits, by weight, to those that
// were found running at a tick, once in a period of 30 ms. When, isn't told, unless one has so
// much that it is to get no more: so the shadow keeps the time in between, and is set right
// whenever it is told, or by what the hypervisor prints (see Printed).
type Shadow struct {
	cpus   int
	period int64
	shares map[uint16]Share

	units   map[trace.VCPU]*earner
	active  []*fund // domains with vCPUs that earn; the first one gets first
	balance int64   // what all that earn had together, as last handed out
	clock   clock
	counted int // how often credits were handed out before all that is known of
	told    bool
}

// Share is what a domain may have: more than another in proportion to its weight, and so many
// percent of one CPU; no cap is 0.
type Share struct{ Weight, Cap int }

// fund is what a domain's vCPUs share.
type fund struct {
	domain uint16
	earn   []*earner
}

// earner is a vCPU.
type earner struct {
	id       trace.VCPU
	credit   int64 // of 100 µs
	peak     int64 // what it had when it was last given some, if nobody has too much
	gets     int64 // what it was given last
	priority int
	earns    bool
	changed  int64 // when earns did
	runs     bool
	cpu      int
	from     int64 // since when what it runs isn't taken off; while it doesn't run, how much that was
	rest     int64 // what of that is less than a credit; see burn
	past     []had // what it had, the last one last
}

// had is a credit since a time.
type had struct{ at, credit int64 }

const (
	perCredit  = 100000 // ns that one stands for
	mostPast   = 32     // of what vCPUs had that is known, and
	somePast   = 8      // what is kept when there is more
	ticks      = 3      // in a period
	usualShare = 256
)

// NewShadow is that of a pool with so many CPUs, in whose period of so many ns credits are handed
// out. Nobody has any at first.
func NewShadow(cpus int, period int64) *Shadow {
	s := &Shadow{cpus: cpus, period: max(period, ticks*perCredit), shares: make(map[uint16]Share), units: make(map[trace.VCPU]*earner)}
	s.clock.period = s.period
	return s
}

// Share says what a domain may have: those that it wasn't said of aren't the pool's.
func (s *Shadow) Share(domain uint16, is Share) { s.shares[domain] = is }

// Forget forgets a domain: it has gone, or is another pool's.
func (s *Shadow) Forget(domain uint16) {
	delete(s.shares, domain)
	for id, u := range s.units {
		if id.Domain == domain {
			s.stop(0, u)
			delete(s.units, id)
		}
	}
}

func (s *Shadow) of(id trace.VCPU) *earner {
	u := s.units[id]
	if u == nil {
		if _, ours := s.shares[id.Domain]; !ours || len(s.units) >= maxVCPUs {
			return nil
		}
		u = &earner{id: id, priority: dump.Under, changed: math.MinInt64}
		s.units[id] = u
	}
	return u
}

// Credit is what a vCPU has, of 100 µs each, as Xen accounted for it last, and where it stands.
func (s *Shadow) Credit(id trace.VCPU) (credit int64, priority int, ok bool) {
	u := s.units[id]
	if u == nil {
		return 0, dump.Under, false
	}
	return u.credit, u.priority, true
}

// Take takes a record of a time that is no earlier than those before.
func (s *Shadow) Take(at int64, r *trace.Record) {
	s.Until(at)
	switch r.Kind() {
	case trace.Lost:
		s.lose(r.CPU)
	case trace.Running:
		if r.N >= 1 {
			s.change(at, r, trace.Packed(r.Words[0]))
		}
	case trace.Continues:
		if u := s.of(trace.Packed(r.Words[0])); u != nil && r.N >= 1 {
			u.begin(at, r.CPU)
			u.burn(at)
		}
	case trace.PickedCPU, trace.AccountStart: // which a tick does with whoever it finds running
		if u := s.named(r); u != nil && u.runs && u.cpu == r.CPU {
			s.tick(at, r, u)
		}
	case trace.AccountStop:
		if u := s.named(r); u != nil {
			s.stopped(at, r.CPU, u)
		}
	case trace.BoostStart:
		if u := s.named(r); u != nil {
			u.priority = dump.Boost
		}
	case trace.BoostEnd:
		if u := s.named(r); u != nil {
			u.priority = dump.Under
		}
	}
}

// named is the vCPU that a record is of, if it is one of ours.
func (s *Shadow) named(r *trace.Record) *earner {
	if r.N < 2 {
		return nil
	}
	return s.of(r.Named(0))
}

// lose has nobody know what ran on a CPU meanwhile, and so what credit there is, until it is printed.
func (s *Shadow) lose(cpu int) {
	for _, u := range s.units {
		if u.runs && u.cpu == cpu {
			u.runs, u.from = false, 0
		}
	}
	s.clock.rests(cpu)
	s.told = false
}

func (s *Shadow) change(at int64, r *trace.Record, id trace.VCPU) {
	if id.Domain == trace.Idle {
		s.clock.rests(r.CPU)
		return
	}
	u := s.of(id)
	if u == nil {
		return
	}
	from, to := r.Runstates()
	if from == trace.Runs && u.runs {
		u.burn(at)
		u.from -= at
		u.runs = false
	}
	if to == trace.Runs {
		u.begin(at, r.CPU)
	}
}

// tick has a CPU find a vCPU running.
func (s *Shadow) tick(at int64, r *trace.Record, u *earner) {
	if s.clock.tick(r.CPU, at) {
		s.Until(at)
		s.clock.ticked(r.CPU, at)
	}
	u.burn(at)
	if u.priority == dump.Boost {
		u.priority = dump.Under
	}
	s.start(at, u) // else it would not have looked for another CPU for it
}

// stopped: the hypervisor told that a vCPU earns no more, which it does as it hands out credits
// and this one would have more than a period's.
func (s *Shadow) stopped(at int64, cpu int, u *earner) {
	if at-s.clock.handed() > s.period/2 {
		s.hand(at)
	}
	s.clock.told(cpu, at)
	if u.earns {
		u.set(at, max(u.peak, s.most())/2)
		s.stop(at, u)
	}
}

// most are the credits of a period.
func (s *Shadow) most() int64 { return s.period / perCredit }

// Until has credits handed out whose time has come.
func (s *Shadow) Until(at int64) {
	for {
		next, ok := s.clock.comes(at)
		if !ok {
			return
		}
		s.hand(next)
	}
}

func (u *earner) begin(at int64, cpu int) {
	if !u.runs {
		u.from += at
	}
	u.runs, u.cpu = true, cpu
}

// burn takes off what it ran. Whatever is less than a credit Xen counts twice: it stays in the
// time that isn't taken off yet, and is added to the next.
func (u *earner) burn(at int64) {
	ran := at - u.from
	if ran <= 0 {
		return
	}
	ran += u.rest
	u.rest = ran % perCredit
	u.from += ran - u.rest
	u.set(at, u.credit-ran/perCredit)
}

func (u *earner) set(at, credit int64) {
	if credit == u.credit && len(u.past) > 0 {
		return
	}
	u.credit = credit
	if len(u.past) >= mostPast {
		u.past = append(u.past[:0], u.past[len(u.past)-somePast:]...)
	}
	u.past = append(u.past, had{at, credit})
}

// start has a vCPU earn.
func (s *Shadow) start(at int64, u *earner) {
	if u.earns {
		return
	}
	u.earns, u.changed = true, at
	for _, f := range s.active {
		if f.domain == u.id.Domain {
			f.earn = slices.Insert(f.earn, 0, u)
			return
		}
	}
	s.active = slices.Insert(s.active, 0, &fund{u.id.Domain, []*earner{u}})
}

// stop has it earn no more.
func (s *Shadow) stop(at int64, u *earner) {
	if !u.earns {
		return
	}
	u.earns, u.changed = false, at
	for i, f := range s.active {
		if f.domain == u.id.Domain {
			f.earn = slices.DeleteFunc(f.earn, func(v *earner) bool { return v == u })
			if len(f.earn) == 0 {
				s.active = slices.Delete(s.active, i, i+1)
			}
			return
		}
	}
}

// up divides, upwards.
func up(a, by int64) int64 { return (a + by - 1) / by }

// hand hands out the credits of a period as Xen does: to each domain by its vCPUs' weights, at most
// a CPU's for each vCPU, and no more than its cap; what that leaves is for those that come next.
// What all lack together is made up for.
func (s *Shadow) hand(at int64) {
	weights := int64(0)
	for _, f := range s.active {
		weights += s.weight(f)
	}
	s.clock.hands(at, weights != 0)
	lack := max(-s.balance, 0)
	s.balance = 0
	total, left, extra := s.most()*int64(s.cpus)+lack, weights, false
	for _, f := range slices.Clone(s.active) {
		w, n := s.weight(f), int64(len(f.earn))
		left -= w
		peak := n*s.most() + up(lack*w, weights)
		if percent := s.shares[f.domain].Cap; percent != 0 {
			peak = min(peak, up(int64(percent)*s.most(), 100))
		}
		fair := up(total*w, weights)
		if fair < peak {
			extra = true
		} else {
			if left != 0 {
				total += up((fair-peak)*weights, left)
			}
			if extra {
				s.first(f)
			}
			fair = peak
		}
		fair = up(fair, n)
		for _, u := range slices.Clone(f.earn) {
			s.earn(at, u, fair)
			s.balance += u.credit
		}
	}
}

// first has a domain get first from now on.
func (s *Shadow) first(f *fund) {
	i := slices.Index(s.active, f)
	s.active = slices.Insert(slices.Delete(s.active, i, i+1), 0, f)
}

// earn gives a vCPU its part of what its domain gets.
func (s *Shadow) earn(at int64, u *earner, fair int64) {
	u.gets = fair
	credit := u.credit + fair
	if credit < 0 {
		u.priority = dump.Over
		u.set(at, max(credit, -s.most()))
		return
	}
	u.priority = dump.Under
	u.peak = credit
	u.set(at, min(credit, s.most())) // more would have been told
}

func (s *Shadow) weight(f *fund) int64 {
	w := int64(s.shares[f.domain].Weight)
	if w <= 0 {
		w = usualShare
	}
	return w * int64(len(f.earn))
}
