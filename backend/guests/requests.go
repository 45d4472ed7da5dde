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

// Requests answers the requests of the control socket about domains and accelerators.
type Requests struct{ reg *Registry }

// Requests returns the requests that the registry answers.
func (d *Registry) Requests() Requests { return Requests{d} }

// Status describes the daemon.
func (r Requests) Status() control.Status {
	d := r.reg
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
func (r Requests) Domains(q control.DomainParams) ([]control.Domain, error) {
	d := r.reg
	d.mu.Lock()
	defer d.mu.Unlock()
	all := []control.Domain{}
	if q.Domain != "" {
		dom := d.domains[q.Domain]
		if dom == nil {
			return nil, r.noDomain(q.Domain)
		}
		return append(all, dom.show()), nil
	}
	for _, name := range slices.Sorted(maps.Keys(d.domains)) {
		all = append(all, d.domains[name].show())
	}
	return all, nil
}

// Accelerators describes all accelerators.
func (r Requests) Accelerators() []control.Accelerator {
	d := r.reg
	d.mu.Lock()
	defer d.mu.Unlock()
	all := []control.Accelerator{}
	for _, a := range d.accelerators {
		all = append(all, r.showAccelerator(a))
	}
	return all
}

// Accelerator returns the accelerator of that name, or the only one if name is empty.
func (r Requests) Accelerator(name string) (*sched.Accelerator, error) {
	d := r.reg
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
func (r Requests) Shutdown(p control.Peer, q control.ShutdownParams) (struct{}, error) {
	d := r.reg
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
func (r Requests) ExplainPolicy(domain string) []string {
	d := r.reg
	d.mu.Lock()
	defer d.mu.Unlock()
	if dom := d.domains[domain]; dom != nil && dom.on != nil {
		return dom.on.Explain(dom.attachment)
	}
	return nil
}

// Loops returns the scheduler loops of all accelerators.
func (r Requests) Loops() []*sched.Accelerator {
	d := r.reg
	d.mu.Lock()
	defer d.mu.Unlock()
	all := make([]*sched.Accelerator, len(d.accelerators))
	for i, a := range d.accelerators {
		all[i] = a.Accelerator
	}
	return all
}

// EachPage calls do with the gate page of each attached domain. The pages stay mapped until EachPage returns.
func (r Requests) EachPage(do func(accelerator, domain string, page *gate.Page)) {
	d := r.reg
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, dom := range d.domains {
		if dom.on != nil {
			do(dom.on.Name, dom.name, dom.attachment.Page)
		}
	}
}

// Drawn returns the processes of all domains and machines whose use of the CPUs a timeline shows.
func (r Requests) Drawn() []hypervisor.Guests {
	d := r.reg
	return cpuDomains{d}.drawn()
}

// CPUDomains returns the domains for cpus.Sampler.
func (d *Registry) CPUDomains() cpus.Domains { return cpuDomains{d} }

// Followers returns the machines on accelerators whose CPU weights follow the windows, by name.
func (d *Registry) Followers() []hypervisor.Guests { return cpuDomains{d}.followers() }
