package guests

import (
	"errors"
	"maps"
	"slices"

	"pegasus/accel/placement"
	"pegasus/backend/control"
	"pegasus/backend/sched"
	"pegasus/backend/worker"
	"pegasus/configs"
	"pegasus/hypervisor"
	"pegasus/policies"
)

// Reload reads the configuration again. If it is invalid or cannot be put into force, the old one stays.
func (reg *Registry) Reload(by *control.Peer) (control.ReloadResult, error) {
	r := control.ReloadResult{Config: reg.opt.ConfigPath, Changes: []control.Change{}}
	if reg.opt.ConfigPath == "" {
		return r, nil
	}
	reg.reloading.Lock()
	defer reg.reloading.Unlock()
	next, err := configs.Load(reg.opt.ConfigPath, reg.opt.Accept)
	var changes []configs.Change
	if err == nil {
		changes, err = reg.follow(next)
	}
	reg.mu.Lock()
	reg.configError = ""
	if err != nil {
		reg.configError = err.Error()
	}
	reg.mu.Unlock()
	if err != nil {
		reg.log.Error("reload configuration failed; keeping the old settings", "err", err)
		return control.ReloadResult{}, control.Errorf(control.CodeInvalid, "the old settings stay:\n%v", err)
	}
	reg.journal.NoteBy(by, "reload", "", "the configuration was read again: %d changes", len(changes))
	reg.Warn(next)
	r.Warnings = next.Warnings
	for _, c := range changes {
		r.Changes = append(r.Changes, control.Change{Text: c.String(), Applied: c.Hot})
	}
	reg.orderWorkers()
	return r, nil
}

// follow puts a configuration into force, as far as a running daemon can, and returns its changes. After an error
// nothing has changed.
func (reg *Registry) follow(next *configs.Config) ([]configs.Change, error) {
	reg.mu.Lock()
	defer reg.mu.Unlock()
	p := &plan{reg: reg, config: next}
	if err := p.prepare(); err != nil {
		for _, e := range p.entries {
			if e.endpoint != nil {
				reg.closeEndpoint(e.endpoint)
			}
		}
		for _, dom := range p.guarded {
			err = errors.Join(err, dom.endpoint.Guard(guardOf(dom.settings)))
		}
		return nil, err
	}
	changes := reg.changes(next)
	for _, c := range changes {
		reg.journal.Note("reload", "", "%s", c)
	}
	p.carryOut()
	return changes, nil
}

// A plan is the complete effect of a configuration, computed before any of it is put into force: every step that can
// fail has succeeded.
type plan struct {
	reg          *Registry
	config       *configs.Config
	accelerators []acceleratorPlan // one for each of the daemon's
	queue        *placement.Queue
	domains      map[*domain]domainPlan // the domains that admit processes
	entries      []entry
	guarded      []*domain // domains with endpoints that admit other users than before
}

// acceleratorPlan holds an accelerator's next settings, their policies, and the settings of `pegasus policy` that stay.
type acceleratorPlan struct {
	settings configs.Accelerator
	policy   []policies.Policy
	switched map[string]setting
}

// domainPlan holds a domain's next settings, and the settings of `pegasus set` that stay.
type domainPlan struct {
	settings configs.Domain
	set      map[string]setting
}

// entry is a domain that admits processes from now on.
type entry struct {
	dom      *domain
	endpoint hypervisor.Endpoint
}

// prepare fills in a plan. After an error the caller must close its endpoints. Registry.mu is held.
func (p *plan) prepare() error {
	reg := p.reg
	if reg.ending {
		return errEnding
	}
	var settings []configs.Accelerator
	for _, a := range reg.accelerators {
		next, err := planAccelerator(p.config, a, reg.opt.Accept)
		if err != nil {
			return err
		}
		p.accelerators = append(p.accelerators, next)
		settings = append(settings, next.settings)
	}
	if err := p.planDomains(); err != nil {
		return err
	}
	for dom, next := range p.domains {
		if dom.endpoint == nil || guardOf(dom.settings) == guardOf(next.settings) {
			continue
		}
		if err := dom.guard(next.settings); err != nil {
			return err
		}
		p.guarded = append(p.guarded, dom)
	}
	var err error
	p.queue, err = reg.newQueue(settings, func(dom *domain) configs.Domain {
		if next, ok := p.domains[dom]; ok {
			return next.settings
		}
		return dom.settings
	})
	return err
}

// planAccelerator returns the file's settings with those of `pegasus policy`, except where the file has changed the
// same key since.
func planAccelerator(c *configs.Config, a *accelerator, accept configs.Options) (acceleratorPlan, error) {
	next := acceleratorPlan{settings: tableOf(c, a)}
	next.switched = standing(a.switched, next.settings.Get)
	for k, s := range next.switched {
		if err := next.settings.Set(k, s.Value, accept); err != nil {
			return next, err
		}
	}
	var err error
	next.policy, err = sched.NewPolicies(next.settings)
	return next, err
}

// planDomains plans all domains and opens the endpoints of new ones. Registry.mu is held.
func (p *plan) planDomains() error {
	reg := p.reg
	p.domains = map[*domain]domainPlan{}
	var come []*domain
	for _, s := range p.config.Domains {
		if reg.domains[s.Name] == nil {
			come = append(come, newDomain(reg, s, true))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(reg.domains)) {
		dom := reg.domains[name]
		file, err := reg.settingsOf(p.config, name)
		if err != nil {
			continue
		}
		p.domains[dom] = dom.plan(p.config, file)
		if dom.endpoint == nil && (!dom.removing || p.config.Declares(name)) {
			come = append(come, dom)
		}
	}
	next := map[*domain]configs.Domain{}
	for dom, plan := range p.domains {
		next[dom] = plan.settings
	}
	if err := reg.canPromise(next); err != nil {
		return err
	}
	if err := reg.canSell(next, func(i int) int { return p.accelerators[i].settings.MaxCredits }); err != nil {
		return err
	}
	for _, dom := range come {
		if _, is := p.domains[dom]; !is {
			if len(p.domains) >= maxDomains {
				return tooManyDomains(dom.name)
			}
			p.domains[dom] = domainPlan{settings: dom.settings, set: dom.set}
		}
		endpoint, err := dom.openEndpoint(p.domains[dom].settings)
		if err != nil {
			return err
		}
		p.entries = append(p.entries, entry{dom, endpoint})
	}
	return nil
}

// plan applies to the file's settings those of `pegasus set`, except where the file has changed the same key
// since, then those of the programs that hold the domain.
func (dom *domain) plan(c *configs.Config, file configs.Domain) domainPlan {
	reg := dom.reg
	set := standing(dom.set, file.Get)
	over := values(set)
	for _, p := range dom.programs {
		maps.Copy(over, p.Set)
	}
	settings, err := override(c, file, over)
	if err == nil {
		return domainPlan{settings, set}
	}
	reg.log.Warn("settings of `pegasus set` no longer fit the configuration; dropping those that do not", "domain", dom.name, "err", err)
	settings = file
	for fits := true; fits; { // the others stay: one may exclude processes, and one may fit only after another
		fits = false
		for _, k := range slices.Sorted(maps.Keys(over)) {
			if next, err := override(c, settings, map[string]string{k: over[k]}); err == nil {
				settings, fits = next, true
				delete(over, k)
			}
		}
	}
	maps.DeleteFunc(set, func(k string, _ setting) bool { _, left := over[k]; return left })
	return domainPlan{settings, set}
}

// carryOut puts a plan into force. Registry.mu is held.
func (p *plan) carryOut() {
	reg := p.reg
	reg.config, reg.queue = p.config, p.queue
	reg.set = standing(reg.set, p.config.Daemon.Get)
	reg.applyLogLevel()
	reg.workers.Resize(p.config.Daemon.WorkerPool)
	for i, a := range reg.accelerators {
		next := p.accelerators[i]
		a.Configure(next.settings, next.policy)
		a.switched = next.switched
	}
	for _, e := range p.entries {
		if e.dom.removing { // callers of remove wait for gone
			e.dom.removing = false
			close(e.dom.gone)
			e.dom.gone = make(chan struct{})
		}
		e.dom.endpoint = e.endpoint
		reg.domains[e.dom.name] = e.dom
	}
	declared := map[string]bool{}
	for _, c := range p.config.Domains {
		declared[c.Name] = true
	}
	for _, dom := range reg.domains {
		dom.declared = declared[dom.name]
		if next, ok := p.domains[dom]; ok {
			dom.set = next.set
			dom.apply(next.settings)
		} else {
			dom.shut()
		}
		dom.endIfUnowned()
	}
	reg.makeRoom()
}

// orderWorkers sends all workers their changed settings. Workers that start meanwhile receive them after their job.
func (reg *Registry) orderWorkers() {
	reg.mu.Lock()
	orders := map[*guest]worker.Order{}
	for _, g := range reg.guests {
		if g.worker != nil {
			orders[g] = g.standing()
		}
	}
	reg.mu.Unlock()
	for g, o := range orders {
		g.worker.Order(o)
	}
}
