package schedule

import (
	"math/bits"

	"pegasus/hypervisor/xen/trace"
)

// leastCredit is the lowest credit under Credit2: a vCPU that runs on loses no more.
const leastCredit = -10000000

// credit applies a record of a scheduler.
func (h *History) credit(at int64, r *trace.Record) {
	switch {
	case r.Event == trace.CreditBurn && r.N >= 4:
		v := h.vcpu(trace.Packed(r.Words[0]))
		now, ran := int64(int32(r.Words[1])), int64(int32(r.Words[3]))
		if v.CreditKnown && ran > 0 && v.Credit >= now && now > leastCredit {
			v.perNano = rate{v.Credit - now, ran}
		}
		v.CreditKnown, v.Credit, v.Burnt = true, now, at
	case r.Event == trace.CreditReset && r.N >= 3:
		v := h.vcpu(trace.Packed(r.Words[0]))
		v.CreditKnown, v.Credit, v.Burnt = true, int64(int32(r.Words[2])), at
	case r.Event == trace.PickedCPU && r.N >= 3:
		if v := h.vcpu(r.Named(0)); v.State != trace.Runs && r.Words[2] < maxCPUs {
			v.CPU = int(r.Words[2])
		}
	case r.Event == trace.BoostStart && r.N >= 2:
		h.vcpu(r.Named(0)).Boosted = true
	case r.Event == trace.BoostEnd && r.N >= 2:
		h.vcpu(r.Named(0)).Boosted = false
	case r.Event == trace.AccountStart && r.N >= 2:
		h.vcpu(r.Named(0)).Earns = true
	case r.Event == trace.AccountStop && r.N >= 2:
		h.vcpu(r.Named(0)).Earns = false
	}
}

// Left returns a vCPU's remaining credit under Credit2, in ns of a vCPU of the largest weight.
func (v *VCPU) Left(now int64) (credit int64, ok bool) {
	if !v.CreditKnown {
		return 0, false
	}
	credit = v.Credit
	if v.Known && v.State == trace.Runs {
		credit -= v.perNano.of(now - max(v.Burnt, v.Since))
	}
	return max(credit, leastCredit), true
}

// of returns the credit used in ns; one for one while the rate is unknown.
func (r rate) of(ns int64) int64 {
	if ns <= 0 || r.ns <= 0 {
		return max(ns, 0)
	}
	hi, lo := bits.Mul64(uint64(ns), uint64(r.credit))
	if hi >= uint64(r.ns) {
		return ns
	}
	q, _ := bits.Div64(hi, lo, uint64(r.ns))
	return int64(q)
}
