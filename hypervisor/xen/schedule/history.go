// Package schedule makes of the hypervisor Xen's trace what was scheduled: which vCPU ran on which
// CPU, from when to when, who waited, and what credit is left; and foretells from that who
// will run next. It is pure: records and times go in.
//
// Who calls it: those who show when vCPUs ran, and those who want to know who will. What it
// is told is the hypervisor's, but records may be missing, or be any bytes at all.
package schedule

import (
	"pegasus/hypervisor/xen/trace"
)

// Run is a time during which a vCPU ran on a CPU.
type Run struct {
	VCPU     trace.VCPU
	CPU      int
	From, To int64 // ns
}

// History is what records told, one after the other.
type History struct {
	now   int64
	vcpus map[trace.VCPU]*VCPU
	order []*VCPU // as they were first told of
	cpus  []*CPU  // by number
	tell  func(Run)
}

// VCPU is what is known of one. Times are of the History's clock.
type VCPU struct {
	ID    trace.VCPU
	Known bool           // what it does
	State trace.Runstate // this
	Since int64          // since then
	CPU   int            // where it runs, waits or ran last; -1: nobody knows
	Ran   int64          // ns that it did so, as far as was told and up to Since
	Waits int64
	Slept int64
	Gaps  int // how often it wasn't known any more what it does

	burst   habit // how long it runs, after it woke, until it sleeps
	nap     habit // how long it sleeps
	burning int64 // ns that it has run since it woke, up to Since

	Boosted bool // Credit: it woke with credit left, so that it comes before others
	Earns   bool // Credit: it is among those that get credit

	Told    bool  // Credit2: its credit is known:
	Credit  int64 // as accounted at
	Burnt   int64 // this time
	perNano rate  // what it loses while it runs
}

// rate is how much credit goes, for how many ns: a fraction.
type rate struct{ credit, ns int64 }

// CPU is what is known of one.
type CPU struct {
	number  int
	Known   bool // who runs there
	Running trace.VCPU
	Since   int64
	Slice   int64 // for which who runs may run on, from
	Granted int64 // this time; 0: nobody knows
	grantee trace.VCPU
	decided int64 // when it was decided last that who runs does
	told    int64 // up to when runs there were told
}

// NewHistory knows nothing yet. It tells of runs when they end, and when Flush is called.
func NewHistory(tell func(Run)) *History {
	return &History{vcpus: make(map[trace.VCPU]*VCPU), tell: tell}
}

// Now is the time up to which it knows.
func (h *History) Now() int64 { return h.now }

// VCPU is what is known of one, up to now; nil, if it was never told of.
func (h *History) VCPU(id trace.VCPU) *VCPU { return h.vcpus[id] }

// VCPUs are all that were told of but the idle ones, in the order of that.
func (h *History) VCPUs() []*VCPU { return h.order }

// CPUs are all that were told of, by number.
func (h *History) CPUs() []*CPU { return h.cpus }

// SliceLeft is for how long who runs on a CPU may run on if nothing happens.
func (c *CPU) SliceLeft(now int64) (ns int64, ok bool) {
	if !c.Known || c.Granted == 0 || c.Slice <= 0 {
		return 0, false
	}
	return max(c.Granted+c.Slice-now, 0), true
}

// ends is when it is decided again who runs there: when the slice of who does is over, which is so long
// if nobody knows.
func (c *CPU) ends(slice int64) int64 {
	if c.Granted != 0 && c.Slice > 0 {
		return c.Granted + c.Slice
	}
	return c.decided + slice
}

// Did is how long a vCPU has run, waited and slept, as far as was told, up to now.
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

// maxCPUs and maxVCPUs are how many of them are known of; what else records name is nonsense.
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

// Forget forgets a domain's vCPUs: another may get its number.
func (h *History) Forget(domain uint16) { h.Keep(func(id uint16) bool { return id != domain }) }

// Keep forgets the vCPUs of all domains but those.
func (h *History) Keep(is func(domain uint16) bool) {
	for _, c := range h.cpus {
		if c.Known && c.Running.Domain != trace.Idle && !is(c.Running.Domain) {
			h.end(c, h.now)
		}
	}
	h.keep(func(v *VCPU) bool { return is(v.ID.Domain) })
}

// Trim forgets the vCPUs of all domains but those, unless they run: of one that goes on it may never be told
// again that it does.
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

// Take takes a record, of a time that is no earlier than those before; else it counts as of
// theirs.
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

// Lose has what happens on a CPU be unknown, up to its next switch; others may have done there
// what nobody knows.
func (h *History) Lose(cpu int, at int64) {
	h.end(h.cpu(cpu), at)
	for _, v := range h.order {
		if v.Known {
			v.Gaps++
		}
		v.Known, v.Told = false, false
	}
}

// change has a vCPU's state change.
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

// habit is how long something lasts, lately.
type habit struct{ typical int64 }

const habits = 4 // about so many times are looked back

func (b *habit) add(ns int64) {
	if b.typical == 0 {
		b.typical = ns
		return
	}
	b.typical += (ns - b.typical) / habits
}

// left is for how much longer it lasts, after so long: what is older than usual lasts as long again.
func (b *habit) left(ns int64) int64 {
	if b.typical == 0 || ns >= b.typical {
		return max(ns, 1)
	}
	return b.typical - ns
}

// learn has what a vCPU does be known for longer.
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

// runs: a vCPU goes on to run, which may be the first that is told of it.
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

// leaves: a vCPU doesn't run any more where it was known to, or on the CPU that told of it; of that nothing may
// have been told.
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
	h.end(c, at) // whose end wasn't told
	if c.grantee != id {
		c.Granted, c.Slice = 0, 0
	}
	c.Known, c.Running, c.Since, c.decided, c.told = true, id, at, at, at
}

// end ends what runs on a CPU, and tells of it.
func (h *History) end(c *CPU, at int64) {
	h.flush(c, at)
	c.Known = false
}

// Flush tells of what runs now, up to now.
func (h *History) Flush() {
	for _, c := range h.cpus {
		h.flush(c, h.now)
	}
}

func (h *History) flush(c *CPU, at int64) {
	if !c.Known || c.told >= at {
		return
	}
	if h.tell != nil && c.Running.Domain != trace.Idle {
		h.tell(Run{VCPU: c.Running, CPU: c.number, From: c.told, To: at})
	}
	c.told = at
}

// grant has who runs on a CPU, or will in a moment, run for a slice.
func (h *History) grant(at int64, r *trace.Record) {
	c := h.cpu(r.CPU)
	c.Granted, c.Slice, c.grantee = at, int64(int32(r.Words[3])), r.Named(0)
}
