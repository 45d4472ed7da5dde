package guests

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"pegasus/backend/control"
	"pegasus/backend/cpus"
	"pegasus/backend/sched"
	"pegasus/configs"
	"pegasus/hypervisor"
)

// A setting is an operator's value for a key, given while the daemon runs. It stays in force until the configuration
// changes the same key.
type setting struct {
	Value string          `json:"value"`
	File  string          `json:"file"`         // the configuration's value then, in TOML
	By    *control.Caller `json:"by,omitempty"` // nil: of a release that did not keep it, or of a program that has ended
	At    time.Time       `json:"at,omitzero"`
}

// settingBy returns a setting that a caller changes now.
func settingBy(by control.Peer, value, file string) setting {
	return setting{Value: value, File: file, By: callerOf(by), At: time.Now().Round(0)}
}

func callerOf(p control.Peer) *control.Caller {
	return &control.Caller{UID: p.UID, PID: p.PID, Remote: p.Remote}
}

// standing returns the settings that the configuration, read by get, has not changed since.
func standing(all map[string]setting, get func(key string) string) map[string]setting {
	left := map[string]setting{}
	for k, s := range all {
		if get(k) == s.File {
			left[k] = s
		}
	}
	return left
}

func values(all map[string]setting) map[string]string {
	v := make(map[string]string, len(all))
	for k, s := range all {
		v[k] = s.Value
	}
	return v
}

// override returns base with settings, in plain text, applied. All are applied or none.
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

// Set changes a domain's settings while it runs.
func (r Requests) Set(p control.Peer, q control.SetParams) (control.Domain, error) {
	reg := r.reg
	defer reg.orderWorkers() // once d.mu is free
	reg.mu.Lock()
	defer reg.mu.Unlock()
	if q.Domain == "" {
		return control.Domain{}, control.Errorf(control.CodeInvalid, "set: no domain given")
	}
	dom := reg.domains[q.Domain]
	if dom == nil {
		return control.Domain{}, r.noDomain(q.Domain)
	}
	if !dom.admits() {
		return control.Domain{}, dom.closed()
	}
	if any, all := cpus.Tunes(q.Settings); any {
		if !all {
			return control.Domain{}, control.Errorf(control.CodeInvalid, "domain %q: weight and cap are set by themselves: they are the hypervisor's", dom.name)
		}
		if err := r.tune(p, dom.name, q.Settings); err != nil {
			return control.Domain{}, err
		}
		return dom.show(), nil
	}
	if err := r.changeSettings(p, dom, q.Settings); err != nil {
		for k := range q.Settings {
			if reg.machines[dom.name].Host == hypervisor.XenHost && !dom.settings.HasKey(k) {
				return control.Domain{}, control.Errorf(control.CodeInvalid, "%v; and of a domU weight, cap and slice", err)
			}
		}
		return control.Domain{}, err
	}
	for _, k := range slices.Sorted(maps.Keys(q.Settings)) {
		reg.journal.NoteBy(&p, "set", dom.name, "%s = %s", k, q.Settings[k])
	}
	reg.store.saveOrWarn()
	return dom.show(), nil
}

func (r Requests) noDomain(name string) error {
	reg := r.reg
	names, more := slices.Sorted(maps.Keys(reg.domains)), ""
	if reg.opt.DomUs {
		more = "; a domU is one once its name is attached (pegasus attach)"
	}
	return control.Errorf(control.CodeNotFound, "domain %q: there is none of that name; there are %s%s%s", name, orNone(names), configs.DidYouMean(name, names), more)
}

func orNone(names []string) string {
	if len(names) == 0 {
		return "none yet"
	}
	if more := len(names) - mostNames; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:mostNames], ", "), more)
	}
	return strings.Join(names, ", ")
}

// mostNames bounds a list of names in an error.
const mostNames = 32

// tune changes a machine's share of the CPUs in the hypervisor. Registry.mu is held.
func (r Requests) tune(by control.Peer, name string, settings map[string]string) error {
	reg := r.reg
	var m *hypervisor.Machine
	if known, ok := reg.machines[name]; ok {
		m = &known
	}
	if err := cpus.Tune(reg.opt.Tuner, name, m, settings); err != nil {
		return err
	}
	for _, k := range slices.Sorted(maps.Keys(settings)) {
		reg.journal.NoteBy(&by, "set", name, "%s = %s", k, settings[k])
	}
	reg.cpus.WeighSoon()
	return nil
}

// SwitchPolicy switches policy or mode of one accelerator or all, and returns the descriptions of these.
func (r Requests) SwitchPolicy(p control.Peer, q control.PolicyParams) ([]control.Accelerator, error) {
	reg := r.reg
	reg.mu.Lock()
	defer reg.mu.Unlock()
	var meant []*accelerator
	for _, a := range reg.accelerators {
		if q.Accelerator == "" || a.Name == q.Accelerator {
			meant = append(meant, a)
		}
	}
	if len(meant) == 0 {
		return nil, control.Errorf(control.CodeNotFound, "accelerator %q: there is none of that name; there are %s%s",
			q.Accelerator, strings.Join(acceleratorNames(reg.config), ", "), configs.DidYouMean(q.Accelerator, acceleratorNames(reg.config)))
	}
	all := []control.Accelerator{}
	for _, a := range meant {
		if err := r.switchTo(p, a, q); err != nil {
			return nil, err
		}
		all = append(all, r.showAccelerator(a))
	}
	return all, nil
}

// switchTo switches one accelerator. Registry.mu is held.
func (r Requests) switchTo(by control.Peer, a *accelerator, q control.PolicyParams) error {
	reg := r.reg
	next, switched := a.Settings(), maps.Clone(a.switched)
	file := tableOf(reg.config, a)
	for _, s := range [...]struct{ key, value string }{{"policy", q.Name}, {"mode", q.Mode}} {
		if s.value == "" {
			continue
		}
		if err := next.Set(s.key, s.value, reg.opt.Accept); err != nil {
			return control.Errorf(control.CodeInvalid, "accelerator %q: %v", a.Name, err)
		}
		switched[s.key] = settingBy(by, s.value, file.Get(s.key))
	}
	if q.Name == "" && q.Mode == "" {
		return nil
	}
	p, err := sched.NewPolicies(next)
	if err != nil {
		return err
	}
	a.Configure(next, p)
	a.switched = switched
	reg.store.changed = true
	reg.journal.NoteBy(&by, "policy", "", "%s: %s, %s", a.Name, next.Policy, next.Mode)
	return nil
}

// tableOf returns a configuration's settings of a running accelerator, or its current settings if the configuration no
// longer lists it.
func tableOf(c *configs.Config, a *accelerator) configs.Accelerator {
	for _, t := range c.Accelerators {
		if t.Name == a.Name {
			return a.Settings().Following(t)
		}
	}
	return a.Settings()
}

// changeSettings lays settings over a domain's configuration. Registry.mu is held.
func (r Requests) changeSettings(by control.Peer, dom *domain, settings map[string]string) error {
	reg := r.reg
	next, err := override(reg.config, dom.settings, settings)
	if err != nil {
		return err
	}
	file, err := reg.settingsOf(reg.config, dom.name)
	if err != nil {
		return err
	}
	if err := reg.canPromise(map[*domain]configs.Domain{dom: next}); err != nil {
		return err
	}
	if err := reg.canSell(map[*domain]configs.Domain{dom: next}, func(i int) int { return reg.accelerators[i].Settings().MaxCredits }); err != nil {
		return err
	}
	if err := dom.guard(next); err != nil {
		return control.Errorf(control.CodeInvalid, "%v", err)
	}
	for k, v := range settings {
		dom.set[k] = settingBy(by, v, file.Get(k))
		for _, p := range dom.programs {
			delete(p.Set, k)
		}
	}
	dom.apply(next)
	return nil
}
