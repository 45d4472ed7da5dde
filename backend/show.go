package backend

import (
	"context"
	"fmt"
	"slices"
	"time"

	"pegasus/backend/control"
	"pegasus/backend/gate"
	"pegasus/backend/meter"
)

// sampleEvery is the period at which shares are sampled.
const sampleEvery = 250 * time.Millisecond

// stealToTell is the steal time, as a part of a machine's time, from which explain reports it.
const stealToTell = 0.05

// sample samples the use of all domains and accelerators, until ctx ends. It also expires leases and saves the state.
func (d *Daemon) sample(ctx context.Context) {
	t := time.NewTicker(sampleEvery)
	defer t.Stop()
	for {
		d.mu.Lock()
		now := gate.Now()
		for _, dom := range d.domains {
			if len(dom.guests) == 0 && dom.share.Resting() {
				continue
			}
			t, _ := dom.totals()
			dom.share.Sample(now, t.Used.Sum())
			dom.stood.Sample(now, t.Stood)
			dom.workers.Sample(now, t.CPU)
		}
		for _, a := range d.accelerators {
			a.load.Sample(now, a.Hardware.BusyTime())
		}
		d.expire(time.Now())
		d.saveOrWarn()
		d.mu.Unlock()
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
	}
}

// show returns a domain's description. d.mu is held.
func (dom *domain) show() control.Domain {
	d := dom.reg
	t, memory := dom.totals()
	spent, steal := d.sampler.Steal(dom.name)
	out := control.Domain{
		Name: dom.name, State: "idle", Credits: dom.settings.Credits,
		GPU: t.Used.Sum(), Compute: t.Used.Compute, Copy: t.Used.Copies(),
		Calls: t.Calls, WaitP50: t.Waits.quantile(0.5), WaitP99: t.Waits.quantile(0.99),
		Memory: memory, MemoryQuota: uint64(dom.settings.Memory), MemoryGuarantee: uint64(dom.settings.Guarantee),
		Swapped: min(t.Swap.Away, memory), SwapOut: t.Swap.OutBytes, SwapIn: t.Swap.InBytes, SwapOuts: t.Swap.Outs, SwapIns: t.Swap.Ins,
		HostMemory: dom.hostMemory(), HostQuota: uint64(dom.settings.HostMemory),
		CPUWeight: int(dom.cpu.Credits), CPUCap: dom.cpu.Cap,
		VCPUs: spent.VCPUs, VCPURan: int64(spent.Ran), VCPUWaited: int64(spent.Waited), Steal: steal,
		Processes: len(dom.guests), PIDs: []int{}, Socket: dom.socket(), Declared: dom.declared,
		Machine: d.showMachine(dom.name), Owner: dom.owner(), Leases: dom.showLeases(), Removing: dom.removing,
		WorkerCPU: t.CPU, WorkerCPULimit: dom.settings.CPU, WorkerCPULately: dom.workers.Rate(),
	}
	for _, p := range dom.programs {
		out.Programs = append(out.Programs, p.PID)
	}
	for g := range dom.guests {
		if g.pid != 0 { // else the process is not on this host
			out.PIDs = append(out.PIDs, g.pid)
		}
	}
	slices.Sort(out.PIDs)
	d.showTuned(&out)
	if dom.on == nil {
		return out
	}
	out.Accelerator = dom.on.Name
	out.Share = dom.measured()
	out.Spent = dom.spent(steal)
	out.State, out.Entitled = dom.on.Standing(dom.attachment)
	return out
}

// spent returns where a domain's recent time went. Concurrent activities count once: time on the accelerator first,
// then waiting for it, then the vCPUs' waiting for a CPU, a part steal of the time, of which only the sum is available:
// it may overlap the others.
func (dom *domain) spent(steal float64) control.Spent {
	used, ns := dom.share.Growth()
	stood, _ := dom.stood.Growth()
	if ns <= 0 {
		return control.Spent{}
	}
	s := control.Spent{Window: ns}
	left := 1.0
	take := func(part *float64, of int64) {
		*part = min(max(float64(of)/float64(ns), 0), left)
		left -= *part
	}
	take(&s.Accelerator, used)
	take(&s.Turn, stood)
	take(&s.VCPU, int64(steal*float64(ns)))
	s.Idle = left
	return s
}

// measured returns a domain's part of the recent time used by all domains of its accelerator.
func (dom *domain) measured() float64 {
	d := dom.reg
	mine, _ := dom.share.Growth()
	var all int64
	for _, other := range d.domains {
		if other.on == dom.on {
			used, _ := other.share.Growth()
			all += used
		}
	}
	if all == 0 {
		return 0
	}
	return float64(mine) / float64(all)
}

// showAccelerator returns an accelerator's description. d.mu is held.
func (d *Daemon) showAccelerator(a *accelerator) control.Accelerator {
	p := a.Hardware.Profile()
	busy, ns := a.load.Growth()
	d.queue.SetOverloaded(a.Name, a.Overloaded())
	held, uncharged := a.Balance()
	out := control.Accelerator{
		Name: a.Name, Device: p.Device, Memory: p.Memory, MemoryUsed: a.Hardware.MemoryUsed(), Swap: p.Swap,
		MemoryAllocated: a.Hardware.MemoryReserved(), GPU: held, Charged: held - uncharged, Uncharged: uncharged,
		Weight: d.queue.Weight(a.Name),
	}
	if ns > 0 {
		out.Busy = float64(busy) / float64(ns)
	}
	st := a.State()
	s := st.Settings
	out.Type, out.Policy, out.Mode, out.Tick, out.MaxDomains = s.Type, s.Policy, s.Mode, int64(s.Tick), s.MaxDomains
	out.Domains, out.Decisions, out.Explanation, out.DecisionCost = st.Domains, st.Decisions, st.Explanation, st.DecisionCost
	return out
}

// explain returns the reasons for the state of one domain, or of all.
func (d *Daemon) explain(q control.DomainParams) ([]control.Explanation, error) {
	shown, err := d.showDomains(q)
	if err != nil {
		return nil, err
	}
	all := []control.Explanation{}
	for _, s := range shown {
		all = append(all, control.Explanation{Domain: s.Name, Lines: d.reasons(s)})
	}
	return all, nil
}

func (d *Daemon) reasons(s control.Domain) []string {
	lines := machineReasons(s)
	if s.Removing {
		lines = append(lines, fmt.Sprintf("it is being removed: it admits no process, and ends with the last of %d guest processes and %d programs", s.Processes, len(s.Programs)))
	} else if s.Socket == "" {
		lines = append(lines, "it is not in the configuration any more: nobody may enter it, and it goes with its last process")
	}
	if s.Accelerator == "" {
		lines = append(lines, "no guest process has called cuInit: it is on no accelerator")
		if s.Socket != "" {
			lines = append(lines, "programs reach it through "+s.Socket)
		}
		return lines
	}
	lines = append(lines,
		fmt.Sprintf("on %s, %s, with %d guest processes", s.Accelerator, s.State, s.Processes))
	owed := fmt.Sprintf("owed %.1f %%", 100*s.Entitled)
	if s.Entitled == 0 {
		owed = "owed nothing for certain"
	}
	lines = append(lines, fmt.Sprintf("credits %d: %s, got %.1f %% of the time used in the last %v", s.Credits, owed, 100*s.Share, meter.Intervals*sampleEvery))
	if t := s.Spent; t.Window > 0 {
		vcpus := ""
		if s.VCPUs > 0 {
			vcpus = fmt.Sprintf("%.1f %% waiting for its vCPUs, ", 100*t.VCPU)
		}
		lines = append(lines, fmt.Sprintf("of the last %v: %.1f %% on the accelerator, %.1f %% waiting for its turn, %s%.1f %% with nothing asked of it",
			time.Duration(t.Window).Round(100*time.Millisecond), 100*t.Accelerator, 100*t.Turn, vcpus, 100*t.Idle))
	}
	if s.CPUWeight != 0 {
		from := "from its processes' cgroup and niceness"
		if s.Machine != nil && s.Machine.Xen != 0 {
			from = "as Xen's scheduler has it"
		}
		lines = append(lines, fmt.Sprintf("CPU weight %d, %s", s.CPUWeight, from))
	}
	if s.Steal >= stealToTell {
		lines = append(lines, fmt.Sprintf("its %d vCPUs were kept waiting by others on the host's CPUs for %.0f %% of their time lately: a greater CPU weight, or fewer machines on these CPUs, helps",
			s.VCPUs, 100*s.Steal))
	}
	lines = append(lines, workerReason(s))
	if s.MemoryQuota != 0 && s.Memory >= s.MemoryQuota/10*9 {
		lines = append(lines, fmt.Sprintf("it holds %d of %d bytes of device memory: `pegasus set %s memory=…` allows more", s.Memory, s.MemoryQuota, s.Name))
	}
	if s.Swapped > 0 {
		lines = append(lines, fmt.Sprintf("%d of its %d bytes of device memory are in host memory, since others needed the room; %d bytes left the accelerator so far, %d came back: a `memory_guarantee` or a higher priority keeps more of it there",
			s.Swapped, s.Memory, s.SwapOut, s.SwapIn))
	}
	if s.HostQuota != 0 && s.HostMemory >= s.HostQuota/10*9 {
		lines = append(lines, fmt.Sprintf("it holds %d of %d bytes of host memory: `pegasus set %s host_memory=…` allows more", s.HostMemory, s.HostQuota, s.Name))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if dom := d.domains[s.Name]; dom != nil && dom.on != nil {
		lines = append(lines, dom.on.Explain(dom.attachment)...)
	}
	return lines
}

// workerReason describes the CPU use of a domain's workers.
func workerReason(s control.Domain) string {
	limit := "no limit but its weight"
	if s.WorkerCPULimit != 0 {
		limit = fmt.Sprintf("at most %d %%", s.WorkerCPULimit)
	}
	return fmt.Sprintf("its workers had %v of the host's CPUs, lately %.0f %% of one; %s (`cpu`)",
		time.Duration(s.WorkerCPU).Round(time.Millisecond), 100*s.WorkerCPULately, limit)
}

// showTuned fills in a machine's CPU weight and cap from the hypervisor. d.mu is held.
func (d *Daemon) showTuned(out *control.Domain) {
	if d.opt.Tuner == nil || d.machines[out.Name].Xen == 0 {
		return
	}
	if w, err := d.opt.Tuner.Tuned(out.Name); err == nil { // else the machine has just ended
		out.CPUWeight, out.CPUCap = int(w.Credits), w.Cap
	}
}
