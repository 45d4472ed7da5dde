package backend

import (
	"maps"
	"slices"

	"pegasus/backend/control"
	"pegasus/configs"
	"pegasus/hypervisor"
)

// learn takes down what is known of the host's virtual machines now, and does what
// follows from it for their domains.
func (d *Daemon) learn(all []hypervisor.Machine) {
	next := make(map[string]hypervisor.Machine, len(all))
	for _, m := range all {
		next[m.Domain] = m
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	before := d.machines
	d.machines = next
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if _, ok := next[name]; !ok {
			d.machineChanged(name, before[name], hypervisor.Machine{Domain: name, State: hypervisor.MachineOff})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(next)) {
		d.admitMachine(name)
		d.machineChanged(name, before[name], next[name])
	}
}

// admitMachine makes the domain of a machine, which may be entered as soon as it runs, and
// gives it the credits of the machine's definition. d.mu is held.
func (d *Daemon) admitMachine(name string) {
	dom, err := d.domain(name)
	if err != nil {
		d.log.Debug("a machine can't be a domain", "domain", name, "err", err)
		return
	}
	file, err := d.settingsOf(d.config, name)
	if err != nil || dom.declared {
		return
	}
	plan := d.planDomain(d.config, dom, file)
	if dom.settings != plan.settings {
		dom.set = plan.set
		d.apply(dom, plan.settings)
	}
}

// settingsOf is what holds for a domain: what the configuration says of it, else the
// template with the credits of its machine's definition, if it is one. d.mu is held.
func (d *Daemon) settingsOf(c *configs.Config, name string) (configs.Domain, error) {
	s, err := c.Domain(name)
	if m := d.machines[name]; err == nil && m.Credits != 0 && !declares(c, name) {
		s.Credits = int(m.Credits)
	}
	return s, err
}

// machineChanged follows a machine's state. A machine that was not known before may have
// been as it is all along. d.mu is held.
func (d *Daemon) machineChanged(name string, was, is hypervisor.Machine) {
	dom := d.domains[name]
	if dom == nil {
		return
	}
	switch {
	case is.State == hypervisor.MachineOff:
		d.endMachine(dom, "is off")
	case was.Boot != 0 && was.Boot != is.Boot:
		d.endMachine(dom, "began anew")
	}
	if was.State != is.State && !(was.State == "" && is.State == hypervisor.MachineOff) {
		d.note("machine", name, "the machine is %s", is.State)
	}
	d.pauseIfMachine(dom)
}

// endMachine ends the workers of a machine's processes, which aren't any more. d.mu is held.
func (d *Daemon) endMachine(dom *domain, why string) {
	n := 0
	for g := range dom.guests {
		if g.pid != 0 { // a process of the host
			continue
		}
		n++
		g.doomed = true
		if g.worker != nil {
			kill(g.worker)
		}
	}
	if n > 0 {
		d.note("machine", dom.name, "the machine %s: %d of its processes end", why, n)
	}
}

// pauseIfMachine holds back what a domain wants while its machine is paused. d.mu is held.
func (d *Daemon) pauseIfMachine(dom *domain) {
	if dom.on != nil {
		dom.on.pause(dom.avcpu, d.machines[dom.name].State == hypervisor.MachinePaused)
	}
}

// showMachine describes a domain's machine, if it is one. d.mu is held.
func (d *Daemon) showMachine(name string) *control.Machine {
	m, ok := d.machines[name]
	if !ok {
		return nil
	}
	return &control.Machine{State: string(m.State), Host: m.Host, PID: m.PID, VCPUs: slices.Clone(m.VCPUs), Credits: int(m.Credits)}
}

func declares(c *configs.Config, name string) bool {
	return slices.ContainsFunc(c.Domains, func(d configs.Domain) bool { return d.Name == name })
}
