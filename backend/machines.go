package backend

import "pegasus/hypervisor"

// learn takes down what is known of the host's virtual machines now.
func (d *Daemon) learn(all []hypervisor.Machine) {
	next := make(map[string]hypervisor.Machine, len(all))
	for _, m := range all {
		next[m.Domain] = m
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.machines = next
}
