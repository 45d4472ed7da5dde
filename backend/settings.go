package backend

import (
	"maps"
	"slices"
	"strings"

	"pegasus/backend/control"
	"pegasus/configs"
)

// override is base with settings, in plain text, laid over it. All are applied
// or none.
func override(c *configs.Config, base configs.Domain, settings map[string]string) (configs.Domain, error) {
	next := base
	for _, k := range slices.Sorted(maps.Keys(settings)) {
		if err := next.Set(k, settings[k]); err != nil {
			return base, control.Errorf(control.CodeInvalid, "domain %q: %v", base.Name, err)
		}
	}
	if err := next.Check(c); err != nil {
		return base, control.Errorf(control.CodeInvalid, "domain %q: %v", base.Name, err)
	}
	return next, nil
}

func acceleratorNames(c *configs.Config) (names []string) {
	for _, a := range c.Accelerators {
		names = append(names, a.Name)
	}
	return names
}

// set changes a domain's settings while it runs.
func (d *Daemon) set(q control.SetParams) (control.Domain, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if q.Domain == "" {
		return control.Domain{}, control.Errorf(control.CodeInvalid, "set: which domain?")
	}
	if d.domains[q.Domain] == nil && !d.declares(q.Domain) {
		return control.Domain{}, d.noDomain(q.Domain)
	}
	dom, err := d.domain(q.Domain)
	if err != nil {
		return control.Domain{}, err
	}
	if err := d.setLocked(dom, q.Settings); err != nil {
		return control.Domain{}, err
	}
	for _, k := range slices.Sorted(maps.Keys(q.Settings)) {
		d.note("set", dom.name, "%s = %s", k, q.Settings[k])
	}
	return d.show(dom), nil
}

func (d *Daemon) noDomain(name string) error {
	names := slices.Sorted(maps.Keys(d.domains))
	return control.Errorf(control.CodeNotFound, "domain %q: there is none of that name; there are %s", name, orNone(names))
}

func orNone(names []string) string {
	if len(names) == 0 {
		return "none yet"
	}
	return strings.Join(names, ", ")
}

// policy switches policy or mode of one accelerator or all, and returns those meant.
func (d *Daemon) policy(q control.PolicyParams) ([]control.Accelerator, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var meant []*accelerator
	for _, a := range d.accelerators {
		if q.Accelerator == "" || a.name == q.Accelerator {
			meant = append(meant, a)
		}
	}
	if len(meant) == 0 {
		return nil, control.Errorf(control.CodeNotFound, "accelerator %q: there is none of that name; there are %s",
			q.Accelerator, strings.Join(acceleratorNames(d.config), ", "))
	}
	all := []control.Accelerator{}
	for _, a := range meant {
		next := a.current()
		for _, s := range [...]struct{ key, value string }{{"policy", q.Name}, {"mode", q.Mode}} {
			if s.value == "" {
				continue
			}
			if err := next.Set(s.key, s.value, d.opt.Accept); err != nil {
				return nil, control.Errorf(control.CodeInvalid, "accelerator %q: %v", a.name, err)
			}
		}
		if q.Name != "" || q.Mode != "" {
			if err := a.configure(next); err != nil {
				return nil, err
			}
			d.changed = true
			d.note("policy", "", "%s: %s, %s", a.name, next.Policy, next.Mode)
		}
		all = append(all, d.showAccelerator(a))
	}
	return all, nil
}

// reload reads the configuration again. When it is bad the old one stays.
func (d *Daemon) reload() (control.ReloadResult, error) {
	if d.opt.ConfigPath == "" {
		return control.ReloadResult{Changes: []control.Change{}}, nil
	}
	next, err := configs.Load(d.opt.ConfigPath, d.opt.Accept)
	d.mu.Lock()
	defer d.mu.Unlock()
	if err != nil {
		d.configError = err.Error()
		d.log.Error("configuration refused, the old settings stay", "err", err)
		return control.ReloadResult{}, control.Errorf(control.CodeInvalid, "the old settings stay:\n%v", err)
	}
	d.configError = ""
	r := control.ReloadResult{Config: d.opt.ConfigPath, Changes: []control.Change{}}
	for _, c := range configs.Diff(d.config, next) {
		d.forget(c)
		d.note("reload", "", "%s", c)
		r.Changes = append(r.Changes, control.Change{Text: c.String(), Applied: c.Hot})
	}
	if err := d.follow(next); err != nil {
		return r, err
	}
	return r, nil
}

// forget drops what `pegasus set` said about a key that the file now sets.
func (d *Daemon) forget(c configs.Change) {
	for _, dom := range d.domains {
		if c.Table == "domain" && c.Name == dom.name || c.Table == "default_domain" && !dom.declared {
			delete(dom.set, c.Key)
		}
	}
}

// follow puts a configuration into force, as far as a running daemon can. d.mu is held.
func (d *Daemon) follow(next *configs.Config) error {
	old := d.config
	d.config = next
	if d.opt.SetLogLevel != nil {
		d.opt.SetLogLevel(next.Daemon.LogLevel)
	}
	d.pool.resize(next.Daemon.WorkerPool)
	for _, a := range d.accelerators {
		if err := d.followAccelerator(a, old, next); err != nil {
			return err
		}
	}
	if err := d.lineUp(); err != nil {
		return err
	}
	for _, c := range next.Domains {
		if _, err := d.domain(c.Name); err != nil {
			return err
		}
	}
	for _, dom := range d.domains {
		d.followDomain(dom)
	}
	return nil
}

// followAccelerator changes only what differs between the files, so that what
// `pegasus policy` switched stays unless the file says otherwise now.
func (d *Daemon) followAccelerator(a *accelerator, old, next *configs.Config) error {
	was, now := tableOf(old, a.name), tableOf(next, a.name)
	if was == nil || now == nil || *was == *now {
		return nil
	}
	s, c := *now, a.current()
	if was.Policy == now.Policy {
		s.Policy = c.Policy
	}
	if was.Mode == now.Mode {
		s.Mode = c.Mode
	}
	return a.configure(s)
}

func tableOf(c *configs.Config, name string) *configs.Accelerator {
	for i := range c.Accelerators {
		if c.Accelerators[i].Name == name {
			return &c.Accelerators[i]
		}
	}
	return nil
}

func (d *Daemon) followDomain(dom *domain) {
	dom.declared = d.declares(dom.name)
	base, err := d.config.Domain(dom.name)
	if err != nil { // no longer declared, and not welcome without: who is in stays
		return
	}
	next, err := override(d.config, base, dom.set)
	if err != nil {
		d.log.Warn("settings no longer fit the configuration", "domain", dom.name, "err", err)
		dom.set, next = map[string]string{}, base
	}
	d.apply(dom, next)
}
