package schedule

import (
	"slices"

	"pegasus/hypervisor/xen/trace"
)

// Tally counts how often it came true who was foretold to run on a CPU at an instant, beside the
// plainest of forecasts: that all goes on as now.
type Tally struct {
	Asked, Hits, AsNow int
	open               []forecast
	lead               int // how many more came true lately than if all had gone on as it was
}

// Better says whether forecasts are better lately than that all goes on as it is.
func (t *Tally) Better() bool { return t.lead >= 0 }

// mostLead is how much of a lead is remembered.
const mostLead = 200

// forecast is one of a CPU.
type forecast struct {
	at         int64
	cpu        int
	said, now  trace.VCPU
	ran, asNow bool // who was foretold to did
}

// mostOpen is how many forecasts may wait for their time.
const mostOpen = 1 << 14

// Foretold: so it is foretold of some CPUs for an instant, and so it was when that was said.
func (t *Tally) Foretold(at int64, cpus []int, said, now []trace.VCPU) {
	for _, cpu := range cpus {
		if cpu < len(said) && cpu < len(now) && len(t.open) < mostOpen {
			t.open = append(t.open, forecast{at: at, cpu: cpu, said: said[cpu], now: now[cpu]})
		}
	}
}

// Ran: a vCPU ran.
func (t *Tally) Ran(r Run) {
	for i := range t.open {
		f := &t.open[i]
		if f.cpu == r.CPU && r.From <= f.at && f.at < r.To {
			f.ran, f.asNow = f.said == r.VCPU, f.now == r.VCPU
			f.said.Domain, f.now.Domain = busy, busy
		}
	}
}

// busy is the domain of nobody's: somebody did run.
const busy = trace.Idle + 1

// Lose has it be unknown what ran on a CPU from a time on: what was foretold of that is neither right nor wrong.
func (t *Tally) Lose(cpu int, at int64) {
	t.open = slices.DeleteFunc(t.open, func(f forecast) bool { return f.cpu == cpu && f.at >= at })
}

// Drop forgets what was foretold and isn't known to have come true, or not.
func (t *Tally) Drop() { t.open = nil }

// Until: all runs up to a time were told.
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
