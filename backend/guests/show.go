package guests

import (
	"context"
	"slices"
	"time"

	"pegasus/backend/control"
	"pegasus/backend/gate"
	"pegasus/backend/history"
	"pegasus/backend/meter"
)

// sampleEvery is the period at which shares are sampled.
const sampleEvery = 250 * time.Millisecond

// ShareWindow is the time over which shares are reported.
const ShareWindow = meter.Intervals * sampleEvery

// sample samples the use of all domains and accelerators, until ctx ends. It also expires leases and saves the state.
func (reg *Registry) sample(ctx context.Context) {
	t := time.NewTicker(sampleEvery)
	defer t.Stop()
	for {
		reg.mu.Lock()
		now := gate.Now()
		for _, dom := range reg.domains {
			if len(dom.guests) == 0 && dom.share.Resting() {
				continue
			}
			t, _ := dom.totals()
			dom.share.Sample(now, t.Used.Sum())
			dom.stood.Sample(now, t.Stood)
			dom.engage(now)
			dom.workers.Sample(now, t.CPU)
		}
		for _, a := range reg.accelerators {
			a.load.Sample(now, a.Hardware.BusyTime())
		}
		reg.expire(time.Now())
		reg.store.saveOrWarn()
		reg.mu.Unlock()
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
	}
}

// engagement is the time in which a domain had work that waited or was in flight. Of concurrent workers, each sample
// counts the one that had work for longest: the sum is a lower bound.
type engagement struct {
	meter.Meter
	total, at int64 // ns; at is the time of the last sample
}

// engage samples the domain's engagement. Registry.mu is held.
func (dom *domain) engage(now int64) {
	e := &dom.engaged
	elapsed, longest := now-e.at, int64(0)
	for g := range dom.guests {
		if st, ok := dom.attachment.Page.Statistics(g.slot); ok {
			if g.idle != 0 && e.at != 0 {
				longest = max(longest, elapsed-max(st.Idle-g.idle, 0))
			}
			g.idle = max(st.Idle, 1)
		}
	}
	e.total, e.at = e.total+longest, now
	e.Sample(now, e.total)
}

// survey has the figures of accelerators to which all their domains contribute: computed once, however many domains are
// described.
type survey map[*accelerator]*standings

// standings are the figures of one accelerator's domains.
type standings struct {
	states   map[string]string
	entitled map[string]float64
	used     int64   // recent time on the engines of all domains, ns
	promised float64 // sum of the share objectives
}

// survey computes the figures of all accelerators. Registry.mu is held.
func (reg *Registry) survey() survey {
	s := make(survey, len(reg.accelerators))
	for _, a := range reg.accelerators {
		s[a] = &standings{states: a.States(), entitled: a.Entitlements()}
	}
	for _, dom := range reg.domains {
		if on := s[dom.on]; on != nil {
			used, _ := dom.share.Growth()
			on.used += used
			on.promised += float64(dom.settings.SLO) / 1000
		}
	}
	return s
}

// show returns a domain's description. Registry.mu is held.
func (dom *domain) show() control.Domain { return dom.showIn(dom.reg.survey()) }

// showIn returns a domain's description. Registry.mu is held since the survey.
func (dom *domain) showIn(s survey) control.Domain {
	reg := dom.reg
	t, memory := dom.totals()
	spent, steal := reg.cpus.Steal(dom.name)
	out := control.Domain{
		Name: dom.name, State: "idle",
		DomainShare: control.DomainShare{Credits: dom.settings.Credits},
		DomainCPU: control.DomainCPU{
			CPUWeight: int(dom.cpu.Credits), CPUCap: dom.cpu.Cap,
			VCPUs: spent.VCPUs, VCPURan: int64(spent.Ran), VCPUWaited: int64(spent.Waited), Steal: steal,
		},
		DomainTime: control.DomainTime{
			GPU: t.Used.Sum(), Compute: t.Used.Compute, Copy: t.Used.Copies(),
			Calls: t.Calls, WaitP50: t.Waits.Quantile(0.5), WaitP99: t.Waits.Quantile(0.99),
		},
		DomainMemory: control.DomainMemory{
			Memory: memory, MemoryQuota: uint64(dom.settings.Memory),
			HostMemory: dom.hostMemory(), HostQuota: uint64(dom.settings.HostMemory),
		},
		Processes: len(dom.guests), PIDs: []int{}, Socket: dom.socket(),
		DomainOwners: control.DomainOwners{Declared: dom.declared, Owner: dom.owner(), Leases: dom.showLeases(), Removing: dom.removing},
		Machine:      reg.showMachine(dom.name),
		DomainSwap: control.DomainSwap{
			MemoryGuarantee: uint64(dom.settings.Guarantee),
			Swapped:         min(t.Swap.Away, memory), SwapOut: t.Swap.OutBytes, SwapIn: t.Swap.InBytes, SwapOuts: t.Swap.Outs, SwapIns: t.Swap.Ins,
		},
		DomainWorkers: control.DomainWorkers{WorkerCPU: t.CPU, WorkerCPULimit: dom.settings.CPU, WorkerCPULately: dom.workers.Rate()},
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
	reg.showTuned(&out)
	if dom.on == nil {
		out.Objective = dom.tracker.Show()
		return out
	}
	on := s[dom.on]
	out.Accelerator = dom.on.Name
	if used, _ := dom.share.Growth(); on.used > 0 {
		out.Share = float64(used) / float64(on.used)
	}
	out.Spent = dom.spent(steal, on.used)
	out.State, out.Entitled = on.states[dom.name], on.entitled[dom.name]
	out.Objective = dom.showObjective(&out, on.promised)
	return out
}

// spent returns where a domain's recent time went; all domains of its accelerator used all of it. Concurrent activities
// count once: time on the accelerator first, then waiting for it, then the vCPUs' waiting for a CPU, a part steal of the
// time, of which only the sum is available: it may overlap the others.
func (u *usage) spent(steal float64, all int64) control.Spent {
	used, ns := u.share.Growth()
	stood, _ := u.stood.Growth()
	engaged, _ := u.engaged.Growth()
	stood += history.Behind(engaged, used, stood, all)
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

// showAccelerator returns an accelerator's description. Registry.mu is held.
func (r Requests) showAccelerator(a *accelerator) control.Accelerator {
	reg := r.reg
	p := a.Hardware.Profile()
	busy, ns := a.load.Growth()
	reg.queue.SetOverloaded(a.Name, a.Overloaded())
	held, uncharged := a.Balance()
	out := control.Accelerator{
		Name: a.Name, Device: p.Device, UUID: p.UUID, Memory: p.Memory, MemoryUsed: a.Hardware.MemoryUsed(), Swap: p.Swap,
		MemoryAllocated: a.Hardware.MemoryReserved(), GPU: held, Charged: held - uncharged, Uncharged: uncharged,
		Weight: reg.queue.Weight(a.Name),
	}
	if ns > 0 {
		out.Busy = float64(busy) / float64(ns)
	}
	st := a.State()
	s := st.Settings
	out.Type, out.Policy, out.Mode, out.Tick, out.MaxDomains, out.MaxCredits = s.Type, s.Policy, s.Mode, int64(s.Tick), s.MaxDomains, s.MaxCredits
	out.Domains, out.Decisions, out.Explanation, out.DecisionCost = st.Domains, st.Decisions, st.Explanation, st.DecisionCost
	return out
}

// showTuned fills in a machine's CPU weight and cap from the hypervisor. Registry.mu is held.
func (reg *Registry) showTuned(out *control.Domain) {
	if reg.opt.Tuner == nil || reg.machines[out.Name].Xen == 0 {
		return
	}
	if w, err := reg.opt.Tuner.Tuned(out.Name); err == nil { // else the machine has just ended
		out.CPUWeight, out.CPUCap = int(w.Credits), w.Cap
	}
}
