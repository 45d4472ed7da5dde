package guests

import (
	"cmp"
	"maps"
	"slices"

	"pegasus/backend/cpus"
	"pegasus/hypervisor"
	"pegasus/vcpu"
)

// cpuDomains implements cpus.Domains.
type cpuDomains struct{ reg *Registry }

// Accelerators implements cpus.Domains.
func (c cpuDomains) Accelerators() []cpus.Accelerator {
	c.reg.mu.Lock()
	defer c.reg.mu.Unlock()
	all := make([]cpus.Accelerator, len(c.reg.accelerators))
	for i, a := range c.reg.accelerators {
		all[i] = a
	}
	return all
}

// Guests implements cpus.Domains. The processes of a virtual machine are its emulator's, if it has one; processes
// inside it are not this host's.
func (c cpuDomains) Guests() []hypervisor.Guests {
	c.reg.mu.Lock()
	defer c.reg.mu.Unlock()
	found := make(map[string]hypervisor.Guests)
	for _, g := range c.reg.guests { // there are fewer guests than possible domains
		name := g.dom.name
		if g.dom.on == nil {
			continue
		}
		if of, ok := c.machine(name); ok {
			found[name] = of
		} else if g.pid != 0 {
			of := found[name]
			of.Domain, of.Processes = name, append(of.Processes, g.pid)
			found[name] = of
		}
	}
	var all []hypervisor.Guests
	for _, name := range slices.Sorted(maps.Keys(found)) {
		slices.Sort(found[name].Processes)
		all = append(all, found[name])
	}
	return all
}

// machine returns the observable processes of a domain's machine, if it has one that is not off. Registry.mu is held.
func (c cpuDomains) machine(domain string) (hypervisor.Guests, bool) {
	m := c.reg.machines[domain]
	return m.Guests()
}

// Machines implements cpus.Domains.
func (c cpuDomains) Machines() (all []hypervisor.Guests) {
	c.reg.mu.Lock()
	defer c.reg.mu.Unlock()
	for name := range c.reg.domains {
		if of, ok := c.machine(name); ok {
			all = append(all, of)
		}
	}
	return all
}

// Attached implements cpus.Domains.
func (c cpuDomains) Attached(use func(find func(domain string) (cpus.Accelerator, vcpu.ID))) {
	c.reg.mu.Lock()
	defer c.reg.mu.Unlock()
	use(func(domain string) (cpus.Accelerator, vcpu.ID) {
		dom := c.reg.domains[domain]
		if dom == nil || dom.on == nil {
			return nil, 0
		}
		return dom.on, dom.attachment.ID
	})
}

// SetWeight implements cpus.Domains.
func (c cpuDomains) SetWeight(name string, w hypervisor.Weight) {
	c.reg.mu.Lock()
	defer c.reg.mu.Unlock()
	if dom := c.reg.domains[name]; dom != nil && dom.on != nil && w.Credits != 0 && dom.cpu != w {
		dom.cpu = w
		dom.on.SetShares(dom.attachment, dom.settings, w.Credits)
	}
}

// followers returns the machines on accelerators that enable following, by name.
func (c cpuDomains) followers() []hypervisor.Guests {
	c.reg.mu.Lock()
	defer c.reg.mu.Unlock()
	var all []hypervisor.Guests
	for name, dom := range c.reg.domains {
		if of, ok := c.machine(name); ok && dom.on != nil && dom.on.Settings().CPUFollows {
			all = append(all, of)
		}
	}
	slices.SortFunc(all, func(a, b hypervisor.Guests) int { return cmp.Compare(a.Domain, b.Domain) })
	return all
}

// drawn returns the result of Guests and the machines without guest processes: a timeline also shows which other
// machines had the CPUs.
func (c cpuDomains) drawn() []hypervisor.Guests {
	all := c.Guests()
	c.reg.mu.Lock()
	defer c.reg.mu.Unlock()
	for name := range c.reg.machines {
		of, ok := c.machine(name)
		if ok && !slices.ContainsFunc(all, func(g hypervisor.Guests) bool { return g.Domain == name }) {
			all = append(all, of)
		}
	}
	slices.SortFunc(all, func(a, b hypervisor.Guests) int { return cmp.Compare(a.Domain, b.Domain) })
	return all
}
