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
	"pegasus/configs"
	"pegasus/hypervisor"
	"pegasus/policies"
)

// Requests answers the requests of the control socket about domains and accelerators.
type Requests struct{ reg *Registry }

// Requests returns the requests that the registry answers.
func (reg *Registry) Requests() Requests { return Requests{reg} }

// Status describes the daemon.
func (r Requests) Status() control.Status {
	reg := r.reg
	reg.mu.Lock()
	defer reg.mu.Unlock()
	return control.Status{
		Version: control.Release(), Protocol: control.Version, PID: os.Getpid(),
		Private: reg.opt.Private, DomUs: reg.opt.DomUs, RuntimeDir: reg.opt.RuntimeDir, Config: reg.opt.ConfigPath,
		Started: reg.started, Guests: len(reg.guests), Holders: reg.holders, ReadyPool: reg.workers.Ready(),
		Adopted: reg.adopted, Policies: policies.Names(), Confinement: append(slices.Clip(reg.checks), reg.admission()), ConfigError: reg.configError,
	}
}

// Domains describes one domain, or all.
func (r Requests) Domains(q control.DomainParams) ([]control.Domain, error) {
	reg := r.reg
	reg.mu.Lock()
	defer reg.mu.Unlock()
	all := []control.Domain{}
	if q.Domain != "" {
		dom := reg.domains[q.Domain]
		if dom == nil {
			return nil, r.noDomain(q.Domain)
		}
		d := dom.show()
		d.Settings = dom.domainTable().Settings
		t, _ := dom.totals()
		d.Waits = t.Waits.Counts()
		return append(all, d), nil
	}
	s := reg.survey()
	for _, name := range slices.Sorted(maps.Keys(reg.domains)) {
		all = append(all, reg.domains[name].showIn(s))
	}
	return all, nil
}

// Accelerators describes all accelerators.
func (r Requests) Accelerators() []control.Accelerator {
	reg := r.reg
	reg.mu.Lock()
	defer reg.mu.Unlock()
	all := []control.Accelerator{}
	for _, a := range reg.accelerators {
		all = append(all, r.showAccelerator(a))
	}
	return all
}

// Accelerator returns the accelerator of that name, or the only one if name is empty.
func (r Requests) Accelerator(name string) (*sched.Accelerator, error) {
	reg := r.reg
	reg.mu.Lock()
	defer reg.mu.Unlock()
	var names []string
	for _, a := range reg.accelerators {
		if a.Name == name || name == "" && len(reg.accelerators) == 1 {
			return a.Accelerator, nil
		}
		names = append(names, a.Name)
	}
	return nil, control.Errorf(control.CodeInvalid, "accelerator %q: there is none of that name; there are %s%s", name, strings.Join(names, ", "), configs.DidYouMean(name, names))
}

// Shutdown ends the daemon.
func (r Requests) Shutdown(p control.Peer, q control.ShutdownParams) (struct{}, error) {
	reg := r.reg
	reg.mu.Lock()
	defer reg.mu.Unlock()
	if q.IfIdle && !reg.idle() {
		return struct{}{}, control.Errorf(control.CodeConflict, "daemon is in use by %s and %s", control.Count(len(reg.guests), "guest"), control.Count(reg.holders, "program"))
	}
	reg.ending = true
	reg.journal.NoteBy(&p, "shutdown", "", "shutdown requested")
	reg.end()
	return struct{}{}, nil
}

// ExplainPolicy returns the policy's explanation for a domain; none for a domain on no accelerator.
func (r Requests) ExplainPolicy(domain string) []string {
	reg := r.reg
	reg.mu.Lock()
	defer reg.mu.Unlock()
	if dom := reg.domains[domain]; dom != nil && dom.on != nil {
		return dom.on.Explain(dom.attachment)
	}
	return nil
}

// Loops returns the scheduler loops of all accelerators.
func (r Requests) Loops() []*sched.Accelerator {
	reg := r.reg
	reg.mu.Lock()
	defer reg.mu.Unlock()
	all := make([]*sched.Accelerator, len(reg.accelerators))
	for i, a := range reg.accelerators {
		all[i] = a.Accelerator
	}
	return all
}

// EachPage calls do with the gate page of each attached domain. The pages stay mapped until EachPage returns.
func (r Requests) EachPage(do func(accelerator, domain string, page *gate.Page)) {
	reg := r.reg
	reg.mu.Lock()
	defer reg.mu.Unlock()
	for _, dom := range reg.domains {
		if dom.on != nil {
			do(dom.on.Name, dom.name, dom.attachment.Page)
		}
	}
}

// Drawn returns the processes of all domains and machines, for a timeline of their use of the CPUs.
func (r Requests) Drawn() []hypervisor.Guests {
	reg := r.reg
	return cpuDomains{reg}.drawn()
}

// CPUDomains returns the domains for cpus.Sampler.
func (reg *Registry) CPUDomains() cpus.Domains { return cpuDomains{reg} }

// Followers returns the machines on accelerators whose CPU weights follow the windows, by name.
func (reg *Registry) Followers() []hypervisor.Guests { return cpuDomains{reg}.followers() }
