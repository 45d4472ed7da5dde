package guests

import (
	"maps"
	"os"
	"slices"
	"strings"

	"pegasus/backend/control"
	"pegasus/backend/cpus"
	"pegasus/backend/gate"
	"pegasus/backend/sched"
	"pegasus/hypervisor"
	"pegasus/policies"
)

// Status describes the daemon.
func (d *Registry) Status() control.Status {
	d.mu.Lock()
	defer d.mu.Unlock()
	return control.Status{
		Version: control.Release(), Protocol: control.Version, PID: os.Getpid(),
		Private: d.opt.Private, DomUs: d.opt.DomUs, RuntimeDir: d.opt.RuntimeDir, Config: d.opt.ConfigPath,
		Started: d.started, Guests: len(d.guests), Holders: d.holders, ReadyPool: d.workers.Ready(),
		Adopted: d.adopted, Policies: policies.Names(), Confinement: append(slices.Clip(d.checks), d.admission()), ConfigError: d.configError,
	}
}

// Domains describes one domain, or all.
func (d *Registry) Domains(q control.DomainParams) ([]control.Domain, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := []control.Domain{}
	if q.Domain != "" {
		dom := d.domains[q.Domain]
		if dom == nil {
			return nil, d.noDomain(q.Domain)
		}
		return append(all, dom.show()), nil
	}
	for _, name := range slices.Sorted(maps.Keys(d.domains)) {
		all = append(all, d.domains[name].show())
	}
	return all, nil
}

// Accelerators describes all accelerators.
func (d *Registry) Accelerators() []control.Accelerator {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := []control.Accelerator{}
	for _, a := range d.accelerators {
		all = append(all, d.showAccelerator(a))
	}
	return all
}

// Accelerator returns the accelerator of that name, or the only one if name is empty.
func (d *Registry) Accelerator(name string) (*sched.Accelerator, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var names []string
	for _, a := range d.accelerators {
		if a.Name == name || name == "" && len(d.accelerators) == 1 {
			return a.Accelerator, nil
		}
		names = append(names, a.Name)
	}
	return nil, control.Errorf(control.CodeInvalid, "accelerator %q: there is none of that name; there are %s", name, strings.Join(names, ", "))
}

// Shutdown ends the daemon.
func (d *Registry) Shutdown(p control.Peer, q control.ShutdownParams) (struct{}, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if q.IfIdle && !d.idle() {
		return struct{}{}, control.Errorf(control.CodeConflict, "the daemon is in use by %d guests and %d programs", len(d.guests), d.holders)
	}
	d.ending = true
	d.journal.NoteBy(&p, "shutdown", "", "told to end")
	d.end()
	return struct{}{}, nil
}

// ExplainPolicy returns the policy's explanation for a domain; none for a domain on no accelerator.
func (d *Registry) ExplainPolicy(domain string) []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if dom := d.domains[domain]; dom != nil && dom.on != nil {
		return dom.on.Explain(dom.attachment)
	}
	return nil
}

// Loops returns the scheduler loops of all accelerators.
func (d *Registry) Loops() []*sched.Accelerator {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := make([]*sched.Accelerator, len(d.accelerators))
	for i, a := range d.accelerators {
		all[i] = a.Accelerator
	}
	return all
}

// EachPage calls do with the gate page of each attached domain. The pages stay mapped until EachPage returns.
func (d *Registry) EachPage(do func(accelerator, domain string, page *gate.Page)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, dom := range d.domains {
		if dom.on != nil {
			do(dom.on.Name, dom.name, dom.attachment.Page)
		}
	}
}

// Drawn returns the processes of all domains and machines whose use of the CPUs a timeline shows.
func (d *Registry) Drawn() []hypervisor.Guests { return cpuDomains{d}.drawn() }

// CPUDomains returns the domains for cpus.Sampler.
func (d *Registry) CPUDomains() cpus.Domains { return cpuDomains{d} }

// Followers returns the machines on accelerators whose CPU weights follow the windows, by name.
func (d *Registry) Followers() []hypervisor.Guests { return cpuDomains{d}.followers() }
