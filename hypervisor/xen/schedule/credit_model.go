package schedule

import (
	"math"
	"slices"

	"pegasus/hypervisor/xen/dump"
	"pegasus/hypervisor/xen/trace"
)

// CreditModel computes the credit that the vCPUs of a pool have left under the Credit scheduler, which the hypervisor does
// not record in its trace, from the recorded scheduling events.
//
// Xen subtracts the credit that a vCPU burns at each of its CPU's ticks and at each scheduling decision there; the
// trace has both, so this part is exact. Xen hands out credits, by weight, once in a period of 30 ms to the vCPUs
// that were found running at a tick. The trace has the time of that only if a vCPU's credit exceeds the limit, so
// that it gets no more: in between, CreditModel estimates the time, and corrects it by such records or by what the
// hypervisor prints (see Printed). Not safe for concurrent use.
type CreditModel struct {
	cpus   int
	period int64
	shares map[uint16]Share

	units   map[trace.VCPU]*vcpuCredit
	active  []*creditPool // domains with active vCPUs; the first one gets credit first
	balance int64         // sum of the credits of all active vCPUs after the last hand-out
	clock   clock
	counted int // hand-outs before the first one observed
	synced  bool
}

// Share is a domain's entitlement: a weight relative to the other domains, and a cap in % of one CPU; 0: no cap.
type Share struct{ Weight, Cap int }

// creditPool is the set of active vCPUs of one domain, which share its credit.
type creditPool struct {
	domain uint16
	earn   []*vcpuCredit
}

// vcpuCredit is the credit account of a vCPU.
type vcpuCredit struct {
	id       trace.VCPU
	credit   int64 // in units of 100 µs
	peak     int64 // its credit after the last hand-out, before the limit is applied
	gets     int64 // the credit of the last hand-out
	priority int
	earns    bool
	changed  int64 // time of the last change of earns
	runs     bool
	cpu      int
	from     int64 // start of the running time that is not subtracted yet; while it doesn't run, minus the length of that
	rest     int64 // the part of that below one credit; see burn
	past     []had // earlier values, oldest first
}

// had is a credit value and the time at which it began.
type had struct{ at, credit int64 }

const (
	perCredit  = 100000 // ns that one credit stands for
	mostPast   = 32     // bound on the values in past,
	somePast   = 8      // and the values that remain when it is reached
	ticks      = 3      // per period
	usualShare = 256
)

// NewCreditModel returns the CreditModel of a pool of cpus CPUs that hands out credits every period ns. All credits are 0 at
// first.
func NewCreditModel(cpus int, period int64) *CreditModel {
	s := &CreditModel{cpus: cpus, period: max(period, ticks*perCredit), shares: make(map[uint16]Share), units: make(map[trace.VCPU]*vcpuCredit)}
	s.clock.period = s.period
	return s
}

// Share sets a domain's entitlement. Domains without one are not of the pool.
func (s *CreditModel) Share(domain uint16, is Share) { s.shares[domain] = is }

// Forget removes a domain that has ended or moved to another pool.
func (s *CreditModel) Forget(domain uint16) {
	delete(s.shares, domain)
	for id, u := range s.units {
		if id.Domain == domain {
			s.stop(0, u)
			delete(s.units, id)
		}
	}
}

func (s *CreditModel) of(id trace.VCPU) *vcpuCredit {
	u := s.units[id]
	if u == nil {
		if _, ours := s.shares[id.Domain]; !ours || len(s.units) >= maxVCPUs {
			return nil
		}
		u = &vcpuCredit{id: id, priority: dump.Under, changed: math.MinInt64}
		s.units[id] = u
	}
	return u
}

// Credit returns a vCPU's credit, in units of 100 µs, as Xen accounted for it last, and its priority.
func (s *CreditModel) Credit(id trace.VCPU) (credit int64, priority int, ok bool) {
	u := s.units[id]
	if u == nil {
		return 0, dump.Under, false
	}
	return u.credit, u.priority, true
}

// Take applies a record. Times must not decrease.
func (s *CreditModel) Take(at int64, r *trace.Record) {
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
	case trace.PickedCPU, trace.AccountStart: // a tick records these for the vCPU it finds running
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

// named returns the account of the vCPU that a record names; nil if it is not of this pool.
func (s *CreditModel) named(r *trace.Record) *vcpuCredit {
	if r.N < 2 {
		return nil
	}
	return s.of(r.Named(0))
}

// lose marks the CPU's running vCPU as unknown, and the credits as unreliable until the hypervisor prints them.
func (s *CreditModel) lose(cpu int) {
	for _, u := range s.units {
		if u.runs && u.cpu == cpu {
			u.runs, u.from = false, 0
		}
	}
	s.clock.rests(cpu)
	s.synced = false
}

func (s *CreditModel) change(at int64, r *trace.Record, id trace.VCPU) {
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

// tick applies a scheduler tick on a CPU that found a vCPU running.
func (s *CreditModel) tick(at int64, r *trace.Record, u *vcpuCredit) {
	if s.clock.tick(r.CPU, at) {
		s.Until(at)
		s.clock.ticked(r.CPU, at)
	}
	u.burn(at)
	if u.priority == dump.Boost {
		u.priority = dump.Under
	}
	s.start(at, u) // Xen looks for another CPU only for an active vCPU
}

// stopped applies a record that a vCPU became inactive, which Xen writes while it hands out credits if the vCPU would
// have more than a period's.
func (s *CreditModel) stopped(at int64, cpu int, u *vcpuCredit) {
	if at-s.clock.handed() > s.period/2 {
		s.hand(at)
	}
	s.clock.handedOut(cpu, at)
	if u.earns {
		u.set(at, max(u.peak, s.most())/2)
		s.stop(at, u)
	}
}

// most returns the credits of one CPU in a period.
func (s *CreditModel) most() int64 { return s.period / perCredit }

// Until hands out all credits that are due by at.
func (s *CreditModel) Until(at int64) {
	for {
		next, ok := s.clock.comes(at)
		if !ok {
			return
		}
		s.hand(next)
	}
}

func (u *vcpuCredit) begin(at int64, cpu int) {
	if !u.runs {
		u.from += at
	}
	u.runs, u.cpu = true, cpu
}

// burn subtracts the running time up to at. Xen counts the part below one credit twice: it stays in the time that is
// not subtracted yet, and is added to the next.
func (u *vcpuCredit) burn(at int64) {
	ran := at - u.from
	if ran <= 0 {
		return
	}
	ran += u.rest
	u.rest = ran % perCredit
	u.from += ran - u.rest
	u.set(at, u.credit-ran/perCredit)
}

func (u *vcpuCredit) set(at, credit int64) {
	if credit == u.credit && len(u.past) > 0 {
		return
	}
	u.credit = credit
	if len(u.past) >= mostPast {
		u.past = append(u.past[:0], u.past[len(u.past)-somePast:]...)
	}
	u.past = append(u.past, had{at, credit})
}

// start makes a vCPU active.
func (s *CreditModel) start(at int64, u *vcpuCredit) {
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
	s.active = slices.Insert(s.active, 0, &creditPool{u.id.Domain, []*vcpuCredit{u}})
}

// stop makes a vCPU inactive.
func (s *CreditModel) stop(at int64, u *vcpuCredit) {
	if !u.earns {
		return
	}
	u.earns, u.changed = false, at
	for i, f := range s.active {
		if f.domain == u.id.Domain {
			f.earn = slices.DeleteFunc(f.earn, func(v *vcpuCredit) bool { return v == u })
			if len(f.earn) == 0 {
				s.active = slices.Delete(s.active, i, i+1)
			}
			return
		}
	}
}

// up returns a/by, rounded up.
func up(a, by int64) int64 { return (a + by - 1) / by }

// hand hands out the credits of a period by Xen's algorithm: to each domain by its vCPUs' weights, at most one CPU's
// for each vCPU, and no more than its cap; the remainder goes to the domains that follow. A negative sum of credits
// is replenished.
func (s *CreditModel) hand(at int64) {
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

// first moves a domain to the front of the hand-out order.
func (s *CreditModel) first(f *creditPool) {
	i := slices.Index(s.active, f)
	s.active = slices.Insert(slices.Delete(s.active, i, i+1), 0, f)
}

// earn adds a vCPU's part of its domain's credit.
func (s *CreditModel) earn(at int64, u *vcpuCredit, fair int64) {
	u.gets = fair
	credit := u.credit + fair
	if credit < 0 {
		u.priority = dump.Over
		u.set(at, max(credit, -s.most()))
		return
	}
	u.priority = dump.Under
	u.peak = credit
	u.set(at, min(credit, s.most())) // Xen records a vCPU that exceeds the limit
}

func (s *CreditModel) weight(f *creditPool) int64 {
	w := int64(s.shares[f.domain].Weight)
	if w <= 0 {
		w = usualShare
	}
	return w * int64(len(f.earn))
}
