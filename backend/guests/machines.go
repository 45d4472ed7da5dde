package guests

import (
	"maps"
	"slices"

	"pegasus/backend/control"
	"pegasus/configs"
	"pegasus/hypervisor"
)

// learn records the current state of the host's virtual machines, and applies the changes to their domains.
func (d *Registry) learn(all []hypervisor.Machine) {
	next := make(map[string]hypervisor.Machine, len(all))
	for _, m := range all {
		next[m.Domain] = m
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	before := d.machines
	d.machines = next
	d.cpus.WeighSoon()
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if _, ok := next[name]; !ok {
			d.machineChanged(name, before[name], hypervisor.Machine{Domain: name, State: hypervisor.MachineOff})
			if dom := d.domains[name]; dom != nil {
				dom.endIfUnowned()
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(next)) {
		if _, err := d.domain(name); err != nil { // the domain admits processes as soon as the machine runs
			d.log.Debug("a machine can't be a domain", "domain", name, "err", err)
		}
		d.machineChanged(name, before[name], next[name])
	}
}

// settingsOf returns a domain's settings: those of its [[domain]] table, else of create, else of the template with the
// credits of its machine's definition. d.mu is held.
func (d *Registry) settingsOf(c *configs.Config, name string) (configs.Domain, error) {
	if dom := d.domains[name]; dom != nil && dom.created() && !declares(c, name) {
		return dom.asked.over(c.Undeclared(name)), nil
	}
	s, err := c.Domain(name)
	if m := d.machines[name]; err == nil && m.Credits != 0 && !declares(c, name) {
		s.Credits = int(m.Credits)
	}
	return s, err
}

// machineChanged applies a change of a machine's state to its domain. A machine reported for the first time may have
// been in its state for long. d.mu is held.
func (d *Registry) machineChanged(name string, was, is hypervisor.Machine) {
	dom := d.domains[name]
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
		d.journal.Note("machine", name, "the machine is %s", is.State)
	}
	dom.pauseIfMachine()
}

// applyMachineCredits applies the credits of a machine's definition to its domain, unless the configuration declares the
// domain. d.mu is held.
func (dom *domain) applyMachineCredits() {
	d := dom.reg
	file, err := d.settingsOf(d.config, dom.name)
	if err != nil || dom.declared {
		return
	}
	plan := dom.plan(d.config, file)
	dom.set = plan.set
	dom.apply(plan.settings)
}

// endMachine ends the workers of a machine's processes, which have ended or are no longer served. d.mu is held.
func (dom *domain) endMachine(why string) {
	d := dom.reg
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
		d.journal.Note("machine", dom.name, "the machine %s: %d of its processes end", why, n)
	}
}

// pauseIfMachine pauses a domain while its machine is paused. d.mu is held.
func (dom *domain) pauseIfMachine() {
	d := dom.reg
	if dom.on != nil {
		dom.on.Pause(dom.attachment, d.machines[dom.name].State == hypervisor.MachinePaused)
	}
}

// showMachine describes a domain's machine, or returns nil if the domain is none. d.mu is held.
func (d *Registry) showMachine(name string) *control.Machine {
	m, ok := d.machines[name]
	if !ok {
		return nil
	}
	out := &control.Machine{State: string(m.State), Host: m.Host, PID: m.PID, Xen: int(m.Xen), VCPUs: slices.Clone(m.VCPUs), Credits: int(m.Credits)}
	if d.opt.Agent != nil && m.State != hypervisor.MachineOff {
		out.AgentRelease, out.Agent = d.opt.Agent(name)
	}
	return out
}

func declares(c *configs.Config, name string) bool {
	return slices.ContainsFunc(c.Domains, func(d configs.Domain) bool { return d.Name == name })
}
