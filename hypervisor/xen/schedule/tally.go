package schedule

import (
	"slices"

	"pegasus/hypervisor/xen/trace"
)

// Tally counts how often the vCPU predicted to run on a CPU at an instant did, beside the simplest prediction: that
// the current vCPU keeps running.
type Tally struct {
	Asked, Hits, AsNow int
	open               []forecast
	lead               int // recent hits minus recent hits of the simplest prediction
}

// Better reports whether recent predictions are at least as good as the simplest one.
func (t *Tally) Better() bool { return t.lead >= 0 }

// mostLead bounds lead.
const mostLead = 200

// forecast is the prediction for one CPU.
type forecast struct {
	at         int64
	cpu        int
	said, now  trace.VCPU
	ran, asNow bool // the prediction was right
}

// mostOpen bounds the predictions for a time that has not come.
const mostOpen = 1 << 14

// Foretold adds predictions of some CPUs for the time at; now are the vCPUs running when they were made.
func (t *Tally) Foretold(at int64, cpus []int, said, now []trace.VCPU) {
	for _, cpu := range cpus {
		if cpu < len(said) && cpu < len(now) && len(t.open) < mostOpen {
			t.open = append(t.open, forecast{at: at, cpu: cpu, said: said[cpu], now: now[cpu]})
		}
	}
}

// Ran compares a run with the predictions.
func (t *Tally) Ran(r Run) {
	for i := range t.open {
		f := &t.open[i]
		if f.cpu == r.CPU && r.From <= f.at && f.at < r.To {
			f.ran, f.asNow = f.said == r.VCPU, f.now == r.VCPU
			f.said.Domain, f.now.Domain = busy, busy
		}
	}
}

// busy is a domain number that no run has: it marks a CPU that was not idle.
const busy = trace.Idle + 1

// Lose drops the predictions for a CPU from a time on, of which the running vCPU is unknown.
func (t *Tally) Lose(cpu int, at int64) {
	t.open = slices.DeleteFunc(t.open, func(f forecast) bool { return f.cpu == cpu && f.at >= at })
}

// Drop drops all predictions that have not been evaluated.
func (t *Tally) Drop() { t.open = nil }

// Until evaluates the predictions before now; all runs up to now have been passed to Ran.
func (t *Tally) Until(now int64) {
	kept := t.open[:0]
	for _, f := range t.open {
		if f.at >= now {
			kept = append(kept, f)
			continue
		}
		t.Asked++
		if f.ran || f.said.Domain == trace.Idle {
			t.Hits++
			t.lead = min(t.lead+1, mostLead)
		}
		if f.asNow || f.now.Domain == trace.Idle {
			t.AsNow++
			t.lead = max(t.lead-1, -mostLead)
		}
	}
	t.open = kept
}
