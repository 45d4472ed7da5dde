package schedule

import (
	"slices"

	"pegasus/hypervisor/xen/trace"
)

// Verdict is the accuracy of predictions.
type Verdict struct {
	Asked, Hits int     // predictions of the CPUs' vCPUs at the middle of a period, and correct ones
	Error       float64 // mean difference of the part of a period that a vCPU ran, 0 to 1
	vcpus       int
}

// Rate returns the fraction of correct predictions.
func (v *Verdict) Rate() float64 { return float64(v.Hits) / float64(max(v.Asked, 1)) }

// Predictor returns a prediction of the period that begins now, from the current history.
type Predictor func(h *History, period int64) Prediction

// AsNow predicts that each running vCPU keeps running: the baseline of the comparison.
func AsNow(h *History, period int64) Prediction {
	p := Prediction{Runs: make(map[trace.VCPU]int64)}
	for n, c := range h.CPUs() {
		id := trace.VCPU{Domain: trace.Idle, Number: uint16(n)}
		if c.Known {
			id = c.Running
		}
		p.Middle = append(p.Middle, id)
		p.Runs[id] = period
	}
	return p
}

// Judge evaluates predictions of each period of a recorded trace except the first ones. All Foretellers predict from
// the same history, of the records before the period; before is called with it at each record.
func Judge(records []trace.Record, c *trace.Clock, period int64, first int, before func(*History), of ...Predictor) []Verdict {
	var past []Run
	whole := NewHistory(func(r Run) { past = append(past, r) })
	for i := range records {
		whole.Take(c.Nanos(records[i].At), &records[i])
	}
	whole.Flush()
	verdicts := make([]Verdict, len(of))
	h, next := NewHistory(nil), 0
	for at := c.Nanos(records[0].At) + period*int64(first); at+period <= whole.Now(); at += period {
		for ; next < len(records) && c.Nanos(records[next].At) <= at; next++ {
			h.Take(c.Nanos(records[next].At), &records[next])
			before(h)
		}
		h.now = at
		for i, f := range of {
			verdicts[i].take(f(h, period), h.VCPUs(), past, at, period)
		}
	}
	for i := range verdicts {
		verdicts[i].Error /= float64(max(verdicts[i].vcpus, 1))
	}
	return verdicts
}

func (v *Verdict) take(p Prediction, vcpus []*VCPU, past []Run, at, period int64) {
	from, _ := slices.BinarySearchFunc(past, at, func(r Run, at int64) int { return int(r.To - at) }) // sorted by their ends
	ran := make(map[trace.VCPU]int64)
	middle := make(map[int]trace.VCPU)
	for _, r := range past[from:] {
		if overlap := min(r.To, at+period) - max(r.From, at); overlap > 0 {
			ran[r.VCPU] += overlap
		}
		if r.From <= at+period/2 && at+period/2 < r.To {
			middle[r.CPU] = r.VCPU
		}
	}
	for cpu, id := range p.Middle {
		is, somebody := middle[cpu]
		v.Asked++
		if somebody && is == id || !somebody && id.Domain == trace.Idle {
			v.Hits++
		}
	}
	for _, u := range vcpus {
		d := float64(p.Runs[u.ID]-ran[u.ID]) / float64(period)
		v.Error += max(d, -d)
		v.vcpus++
	}
}
