package guests

import (
	"maps"
	"slices"

	"pegasus/backend/control"
	"pegasus/configs"
	"pegasus/hypervisor"
)

// updateMachines records the current state of the host's virtual machines, and applies the changes to their domains.
func (reg *Registry) updateMachines(all []hypervisor.Machine) {
	next := make(map[string]hypervisor.Machine, len(all))
	for _, m := range all {
		next[m.Domain] = m
	}
	reg.mu.Lock()
	defer reg.mu.Unlock()
	before := reg.machines
	reg.machines = next
	reg.cpus.WeighSoon()
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if _, ok := next[name]; !ok {
			reg.machineChanged(name, before[name], hypervisor.Machine{Domain: name, State: hypervisor.MachineOff})
			if dom := reg.domains[name]; dom != nil {
				dom.endIfUnowned()
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(next)) {
		if _, err := reg.domain(name); err != nil { // the domain admits processes as soon as the machine runs
			reg.log.Debug("create the domain of a machine failed", "domain", name, "err", err)
		}
		reg.machineChanged(name, before[name], next[name])
	}
}

// settingsOf returns a domain's settings: those of its [[domain]] table, else of create, else of the template with the
// credits of its machine's definition. Registry.mu is held.
func (reg *Registry) settingsOf(c *configs.Config, name string) (configs.Domain, error) {
	if dom := reg.domains[name]; dom != nil && dom.created() && !c.Declares(name) {
		return dom.requested.over(c.Undeclared(name)), nil
	}
	s, err := c.Domain(name)
	if m := reg.machines[name]; err == nil && m.Credits != 0 && !c.Declares(name) {
		s.Credits = int(m.Credits)
	}
	return s, err
}

// machineChanged applies a change of a machine's state to its domain. A machine reported for the first time may have
// been in its state for long. Registry.mu is held.
func (reg *Registry) machineChanged(name string, was, is hypervisor.Machine) {
	dom := reg.domains[name]
	if dom == nil {
		return
	}
	if was.Credits != is.Credits {
		dom.applyMachineCredits()
	}
	switch {
	case is.State == hypervisor.MachineOff:
		dom.endMachine("is off")
	case was.Boot != 0 && was.Boot != is.Boot:
		dom.endMachine("began anew")
	}
	if was.State != is.State && !(was.State == "" && is.State == hypervisor.MachineOff) {
		reg.journal.Note("machine", name, "the machine is %s", is.State)
	}
	dom.pauseIfMachine()
}

// applyMachineCredits applies the credits of a machine's definition to its domain, unless the configuration declares
// the domain. Registry.mu is held.
func (dom *domain) applyMachineCredits() {
	reg := dom.reg
	file, err := reg.settingsOf(reg.config, dom.name)
	if err != nil || dom.declared {
		return
	}
	plan := dom.plan(reg.config, file)
	dom.set = plan.set
	dom.apply(plan.settings)
}

// endMachine ends the workers of a machine's processes, which have ended or are no longer served. Registry.mu is held.
func (dom *domain) endMachine(why string) {
	reg := dom.reg
	n := 0
	for g := range dom.guests {
		if g.pid != 0 { // a process of the host
			continue
		}
		n++
		g.doomed = true
		if g.worker != nil {
			g.dismiss()
		}
	}
	if n > 0 {
		reg.journal.Note("machine", dom.name, "the machine %s: %d of its processes end", why, n)
	}
}

// pauseIfMachine pauses a domain while its machine is paused. Registry.mu is held.
func (dom *domain) pauseIfMachine() {
	reg := dom.reg
	if dom.on != nil {
		dom.on.Pause(dom.attachment, reg.machines[dom.name].State == hypervisor.MachinePaused)
	}
}

// showMachine describes a domain's machine, or returns nil if the domain is none. Registry.mu is held.
func (reg *Registry) showMachine(name string) *control.Machine {
	m, ok := reg.machines[name]
	if !ok {
		return nil
	}
	out := &control.Machine{State: string(m.State), Host: m.Host, PID: m.PID, Xen: int(m.Xen), VCPUs: slices.Clone(m.VCPUs), Credits: int(m.Credits)}
	if reg.opt.Agent != nil && m.State != hypervisor.MachineOff {
		out.AgentRelease, out.Agent = reg.opt.Agent(name)
	}
	return out
}
