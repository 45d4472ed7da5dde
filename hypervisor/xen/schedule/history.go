// Package schedule reconstructs vCPU scheduling from the hypervisor Xen's trace: which vCPU ran on which CPU, from
// when to when, which vCPUs waited, and how much credit each has left. It predicts from that which vCPU runs next. It
// is pure: trace records and times are its only input.
//
// Callers: code that displays when vCPUs ran, and code that needs predictions of it.
//
// Trust boundary: records come from the hypervisor, but records may be missing, or contain arbitrary bytes.
package schedule

import (
	"pegasus/hypervisor/xen/trace"
)

// Run is an interval during which a vCPU ran on a CPU.
type Run struct {
	VCPU     trace.VCPU
	CPU      int
	From, To int64 // ns
}

// History is the scheduling state reconstructed from the records taken so far.
type History struct {
	now   int64
	vcpus map[trace.VCPU]*VCPU
	order []*VCPU // in the order of their first records
	cpus  []*CPU  // indexed by CPU number
	emit  func(Run)
}

// VCPU is the reconstructed state of one vCPU. Times are of the History's clock.
type VCPU struct {
	ID    trace.VCPU
	Known bool           // State is valid
	State trace.Runstate // its runstate
	Since int64          // State began
	CPU   int            // where it runs, waits or ran last; -1: unknown
	Ran   int64          // ns spent running, as far as recorded, up to Since
	Waits int64
	Slept int64
	Gaps  int // how often its state became unknown

	burst   movingAverage // how long it runs after a wakeup until it sleeps
	nap     movingAverage // how long it sleeps
	burning int64         // ns it has run since its last wakeup, up to Since

	Boosted bool // Credit: it woke with credit left and has boost priority
	Earns   bool // Credit: it is active, so it receives credit

	CreditKnown bool  // Credit2: Credit and Burnt are valid
	Credit      int64 // its credit, as accounted
	Burnt       int64 // at this time
	perNano     rate  // credit consumption while it runs
}

// rate is a credit consumption as a fraction: credit per ns.
type rate struct{ credit, ns int64 }

// CPU is the reconstructed state of one CPU.
type CPU struct {
	number     int
	Known      bool // Running is valid
	Running    trace.VCPU
	Since      int64
	Slice      int64 // the time slice of the running vCPU, which begins
	Granted    int64 // at this time; 0: unknown
	grantee    trace.VCPU
	decided    int64 // time of the last scheduling decision that the running vCPU keeps the CPU
	reportedTo int64 // end of the last interval reported for this CPU
}

// NewHistory returns an empty History. It calls emit for each run when the run ends and when Flush is called.
func NewHistory(emit func(Run)) *History {
	return &History{vcpus: make(map[trace.VCPU]*VCPU), emit: emit}
}

// Now returns the time of the latest record.
func (h *History) Now() int64 { return h.now }

// VCPU returns the state of a vCPU up to Now; nil if no record named it.
func (h *History) VCPU(id trace.VCPU) *VCPU { return h.vcpus[id] }

// VCPUs returns all vCPUs that records named, without the idle ones, in the order of their first records.
func (h *History) VCPUs() []*VCPU { return h.order }

// CPUs returns all CPUs that records named, by number.
func (h *History) CPUs() []*CPU { return h.cpus }

// SliceLeft returns the remaining time slice of the running vCPU, if no event preempts it. ok is false if it is
// unknown.
func (c *CPU) SliceLeft(now int64) (ns int64, ok bool) {
	if !c.Known || c.Granted == 0 || c.Slice <= 0 {
		return 0, false
	}
	return max(c.Granted+c.Slice-now, 0), true
}

// ends returns the time of the next scheduling decision on the CPU: the end of the running vCPU's slice. The argument
// slice is the slice's length if that is unknown.
func (c *CPU) ends(slice int64) int64 {
	if c.Granted != 0 && c.Slice > 0 {
		return c.Granted + c.Slice
	}
	return c.decided + slice
}

// Did returns for how many ns a vCPU has run, waited and slept up to now, as far as recorded.
func (v *VCPU) Did(now int64) (ran, waited, slept int64) {
	ran, waited, slept = v.Ran, v.Waits, v.Slept
	v.add(now-v.Since, &ran, &waited, &slept)
	return ran, waited, slept
}

func (v *VCPU) add(ns int64, ran, waited, slept *int64) {
	switch {
	case !v.Known || ns < 0:
	case v.State == trace.Runs:
		*ran += ns
	case v.State == trace.Waits:
		*waited += ns
	default:
		*slept += ns
	}
}

// maxCPUs and maxVCPUs bound the CPUs and vCPUs of a History; records that name others are invalid.
const (
	maxCPUs  = 4096
	maxVCPUs = 1 << 16
)

func (h *History) cpu(n int) *CPU {
	for len(h.cpus) <= n {
		h.cpus = append(h.cpus, &CPU{number: len(h.cpus)})
	}
	return h.cpus[n]
}

func (h *History) vcpu(id trace.VCPU) *VCPU {
	v := h.vcpus[id]
	if v == nil {
		if len(h.order) >= maxVCPUs {
			return &VCPU{ID: id, CPU: -1}
		}
		v = &VCPU{ID: id, CPU: -1}
		h.vcpus[id] = v
		if id.Domain != trace.Idle {
			h.order = append(h.order, v)
		}
	}
	return v
}

// Forget removes a domain's vCPUs: Xen can reuse its number for another domain.
func (h *History) Forget(domain uint16) { h.Keep(func(id uint16) bool { return id != domain }) }

// Keep removes the vCPUs of all domains for which is reports false, and ends their runs.
func (h *History) Keep(is func(domain uint16) bool) {
	for _, c := range h.cpus {
		if c.Known && c.Running.Domain != trace.Idle && !is(c.Running.Domain) {
			h.end(c, h.now)
		}
	}
	h.keep(func(v *VCPU) bool { return is(v.ID.Domain) })
}

// Trim removes the vCPUs of all domains for which is reports false, except running ones: Xen may record no further
// event for a vCPU that keeps running.
func (h *History) Trim(is func(domain uint16) bool) {
	h.keep(func(v *VCPU) bool { return v.Known && v.State == trace.Runs || is(v.ID.Domain) })
}

func (h *History) keep(is func(*VCPU) bool) {
	kept := h.order[:0]
	for _, v := range h.order {
		if !is(v) {
			delete(h.vcpus, v.ID)
		} else {
			kept = append(kept, v)
		}
	}
	clear(h.order[len(kept):])
	h.order = kept
}

// Take applies a record. Times must not decrease; an earlier time counts as that of the latest record.
func (h *History) Take(at int64, r *trace.Record) {
	if r.CPU < 0 || r.CPU >= maxCPUs {
		return
	}
	h.now = max(h.now, at)
	at = h.now
	switch r.Kind() {
	case trace.Lost:
		h.Lose(r.CPU, at)
	case trace.Running:
		if r.N >= 1 {
			from, to := r.Runstates()
			h.change(at, r.CPU, h.vcpu(trace.Packed(r.Words[0])), from, to)
		}
	case trace.Continues:
		if r.N >= 1 {
			h.runs(at, r.CPU, h.vcpu(trace.Packed(r.Words[0])))
		}
	case trace.SwitchNext, trace.SwitchCont:
		if r.N >= 4 {
			h.grant(at, r)
		}
	default:
		h.credit(at, r)
	}
}

// Lose marks the state of a CPU as unknown up to its next switch, and that of all vCPUs, which may have run there
// unrecorded.
func (h *History) Lose(cpu int, at int64) {
	h.end(h.cpu(cpu), at)
	for _, v := range h.order {
		if v.Known {
			v.Gaps++
		}
		v.Known, v.CreditKnown = false, false
	}
}

// change applies a vCPU's transition between two runstates.
func (h *History) change(at int64, cpu int, v *VCPU, from, to trace.Runstate) {
	v.learn(at, from, to)
	if v.Known && v.State == from {
		v.add(at-v.Since, &v.Ran, &v.Waits, &v.Slept)
	}
	h.leaves(v, cpu, at)
	v.Known, v.State, v.Since = true, to, at
	if from == trace.Runs || to == trace.Runs || v.CPU < 0 {
		v.CPU = cpu
	}
	if to == trace.Runs {
		h.begin(h.cpu(cpu), cpu, v.ID, at)
	}
}

// movingAverage is a moving average of a duration.
type movingAverage struct{ typical int64 }

const averagedDurations = 4 // the weight of the average: about so many durations

func (b *movingAverage) add(ns int64) {
	if b.typical == 0 {
		b.typical = ns
		return
	}
	b.typical += (ns - b.typical) / averagedDurations
}

// left returns the expected remaining time after ns; a duration longer than average is expected to double.
func (b *movingAverage) left(ns int64) int64 {
	if b.typical == 0 || ns >= b.typical {
		return max(ns, 1)
	}
	return b.typical - ns
}

// learn updates the burst and nap averages of a vCPU at a transition.
func (v *VCPU) learn(at int64, from, to trace.Runstate) {
	asleep := func(s trace.Runstate) bool { return s == trace.Blocked || s == trace.Offline }
	if !v.Known || v.State != from {
		v.burning = 0
		return
	}
	if from == trace.Runs {
		v.burning += at - v.Since
	}
	switch {
	case !asleep(from) && asleep(to):
		v.burst.add(v.burning)
		v.burning = 0
	case asleep(from) && !asleep(to):
		v.nap.add(at - v.Since)
	}
}

// runs applies a record that a vCPU keeps running, which may be the first record of the vCPU.
func (h *History) runs(at int64, cpu int, v *VCPU) {
	c := h.cpu(cpu)
	if c.Known && c.Running == v.ID {
		c.decided = at
		return
	}
	if v.Known && v.State == trace.Runs {
		v.Ran += at - v.Since
	}
	h.leaves(v, cpu, at)
	v.Known, v.State, v.Since, v.CPU = true, trace.Runs, at, cpu
	h.begin(c, cpu, v.ID, at)
}

// leaves ends the run of a vCPU on its last recorded CPU and on the recording CPU; records of its end may have been
// lost.
func (h *History) leaves(v *VCPU, cpu int, at int64) {
	for _, n := range [2]int{v.CPU, cpu} {
		if n < 0 {
			continue
		}
		if c := h.cpu(n); c.Known && c.Running == v.ID {
			h.end(c, at)
		}
	}
}

func (h *History) begin(c *CPU, cpu int, id trace.VCPU, at int64) {
	h.end(c, at) // a run of which no end was recorded
	if c.grantee != id {
		c.Granted, c.Slice = 0, 0
	}
	c.Known, c.Running, c.Since, c.decided, c.reportedTo = true, id, at, at, at
}

// end ends the run on a CPU and reports it.
func (h *History) end(c *CPU, at int64) {
	h.flush(c, at)
	c.Known = false
}

// Flush reports the runs in progress, up to Now.
func (h *History) Flush() {
	for _, c := range h.cpus {
		h.flush(c, h.now)
	}
}

func (h *History) flush(c *CPU, at int64) {
	if !c.Known || c.reportedTo >= at {
		return
	}
	if h.emit != nil && c.Running.Domain != trace.Idle {
		h.emit(Run{VCPU: c.Running, CPU: c.number, From: c.reportedTo, To: at})
	}
	c.reportedTo = at
}

// grant sets the time slice of the vCPU that runs on a CPU or is about to.
func (h *History) grant(at int64, r *trace.Record) {
	c := h.cpu(r.CPU)
	c.Granted, c.Slice, c.grantee = at, int64(int32(r.Words[3])), r.Named(0)
}
