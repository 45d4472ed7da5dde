package guests

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"pegasus/backend/control"
	"pegasus/configs"
)

// logLevel returns the level of the log in force. Registry.mu is held.
func (reg *Registry) logLevel() string {
	if s, ok := reg.set["log_level"]; ok {
		return s.Value
	}
	if reg.opt.LogLevel != "" {
		return reg.opt.LogLevel
	}
	return reg.config.Daemon.LogLevel
}

// applyLogLevel puts the level of the log into force in this process; orderWorkers does so in the workers. Registry.mu
// is held.
func (reg *Registry) applyLogLevel() {
	if reg.opt.SetLogLevel != nil {
		reg.opt.SetLogLevel(reg.logLevel())
	}
}

// Log returns the level of the log.
func (r Requests) Log() control.Log {
	reg := r.reg
	reg.mu.Lock()
	defer reg.mu.Unlock()
	return reg.showLog()
}

// showLog describes the level of the log. Registry.mu is held.
func (reg *Registry) showLog() control.Log {
	for _, s := range reg.daemonTable().Settings {
		if s.Key == "log_level" {
			return control.Log{Level: reg.logLevel(), Origin: s.Origin}
		}
	}
	return control.Log{Level: reg.logLevel()}
}

// SetLog changes the level of the daemon's log and of its workers'. It lasts until the configuration has another level.
func (r Requests) SetLog(by control.Peer, q control.LogParams) (control.Log, error) {
	reg := r.reg
	defer reg.orderWorkers() // once Registry.mu is free
	reg.mu.Lock()
	defer reg.mu.Unlock()
	next := reg.config.Daemon
	if err := next.Set("log_level", q.Level); err != nil {
		return control.Log{}, control.Errorf(control.CodeInvalid, "%v", err)
	}
	if reg.set == nil {
		reg.set = map[string]setting{}
	}
	reg.set["log_level"] = settingBy(by, next.LogLevel, reg.config.Daemon.Get("log_level"))
	reg.applyLogLevel()
	reg.journal.NoteBy(&by, "log", "", "the level of the log is %s", next.LogLevel)
	reg.store.changed = true
	reg.store.saveOrWarn()
	return reg.showLog(), nil
}

// origin returns the origin of a setting that a file gives, or that has its default.
func origin(o configs.Origin) control.Origin {
	return control.Origin{Source: string(o.Source), File: o.File, Line: o.Line}
}

func (s setting) origin() control.Origin {
	return control.Origin{Source: control.FromSet, By: s.By, At: s.At}
}

// show returns a table of a configuration, with the origins there.
func show(t configs.Table) control.Table {
	out := control.Table{Table: t.Kind, Name: t.Name, Settings: make([]control.Setting, len(t.Settings))}
	for i, s := range t.Settings {
		out.Settings[i] = control.Setting{Key: s.Key, Value: s.Value, Default: s.Default, Origin: origin(s.Origin)}
	}
	return out
}

// kept adapts the origins of settings in force: a value that differs from the one that current has comes from before,
// as far as the daemon's first configuration has it, from a line there.
func kept(t *control.Table, current, first func(key string) (configs.Setting, bool)) {
	for i := range t.Settings {
		s := &t.Settings[i]
		if now, ok := current(s.Key); ok && now.Value == s.Value {
			continue
		}
		s.Origin = control.Origin{Source: control.FromBefore}
		if was, ok := first(s.Key); ok && was.Value == s.Value {
			s.Origin = origin(was.Origin)
		}
	}
}

// finder returns a search in the table of that kind and name; without the table no key is found.
func finder(tables []configs.Table, kind, name string) func(key string) (configs.Setting, bool) {
	i := slices.IndexFunc(tables, func(t configs.Table) bool { return t.Kind == kind && t.Name == name })
	return func(key string) (configs.Setting, bool) {
		if i < 0 {
			return configs.Setting{}, false
		}
		j := slices.IndexFunc(tables[i].Settings, func(s configs.Setting) bool { return s.Key == key })
		if j < 0 {
			return configs.Setting{}, false
		}
		return tables[i].Settings[j], true
	}
}

// shared returns the tables of a configuration except its domains.
func shared(c *configs.Config) []configs.Table {
	plain := *c
	plain.Domains = nil
	return plain.Tables()
}

// daemonTable returns the settings of [daemon] in force. Registry.mu is held.
func (reg *Registry) daemonTable() control.Table {
	first, now := shared(reg.opt.Config), shared(reg.config)
	running := *reg.opt.Config
	running.Daemon = running.Daemon.Following(reg.config.Daemon)
	t := show(shared(&running)[0])
	at := finder(now, "daemon", "")
	for i := range t.Settings {
		if s, ok := at(t.Settings[i].Key); ok {
			t.Settings[i].Origin = origin(s.Origin)
		}
	}
	kept(&t, at, finder(first, "daemon", ""))
	for i := range t.Settings {
		s := &t.Settings[i]
		if s.Key == "runtime_dir" && reg.opt.RuntimeDir != filepath.Clean(reg.opt.Config.Daemon.RuntimeDir) {
			if s.Value = strconv.Quote(reg.opt.RuntimeDir); reg.opt.RuntimeDirGiven {
				s.Origin = control.Origin{Source: control.FromFlag}
			}
		}
		if s.Key == "log_level" && reg.opt.LogLevel != "" {
			s.Value, s.Origin = strconv.Quote(reg.opt.LogLevel), control.Origin{Source: control.FromFlag}
		}
		if set, ok := reg.set[s.Key]; ok {
			s.Value, s.Origin = strconv.Quote(set.Value), set.origin()
		}
	}
	return t
}

// acceleratorTable returns an accelerator's settings in force. Registry.mu is held.
func (reg *Registry) acceleratorTable(a *accelerator) control.Table {
	settings := a.Settings()
	t := show(reg.config.AcceleratorTable(&settings))
	kept(&t, finder(shared(reg.config), "accelerator", a.Name), finder(shared(reg.opt.Config), "accelerator", a.Name))
	for i := range t.Settings {
		if set, ok := a.switched[t.Settings[i].Key]; ok {
			t.Settings[i].Origin = set.origin()
		}
	}
	return t
}

// domainTable returns a domain's settings in force. Registry.mu is held.
func (dom *domain) domainTable() control.Table {
	reg := dom.reg
	t := show(reg.config.DomainTable(&dom.settings))
	file, err := reg.settingsOf(reg.config, dom.name)
	now := reg.config.DomainTable(&file)
	if err != nil {
		now.Settings = nil
	}
	kept(&t, finder([]configs.Table{now}, "domain", now.Name), finder(nil, "domain", dom.name))
	for i := range t.Settings {
		s := &t.Settings[i]
		if _, ok := dom.requested[s.Key]; ok && !dom.declared {
			s.Origin = control.Origin{Source: control.FromCreate, By: dom.creation.By, At: dom.creation.At}
		}
		if m := reg.machines[dom.name]; s.Key == "credits" && m.Credits != 0 && !dom.declared && !dom.created() && s.Value == strconv.Itoa(int(m.Credits)) {
			s.Origin = control.Origin{Source: control.FromMachine}
		}
		if set, ok := dom.set[s.Key]; ok {
			s.Origin = set.origin()
		}
		for _, p := range dom.programs {
			if _, ok := p.Set[s.Key]; ok {
				s.Origin = control.Origin{Source: control.FromRun, By: &control.Caller{UID: p.UID, PID: p.PID}}
			}
		}
	}
	return t
}

// Config describes the configuration in force, and what a reload would change. It reads the files, and describes each
// domain, with Registry.mu free in between.
func (r Requests) Config() control.Config {
	reg := r.reg
	reg.reloading.Lock()
	defer reg.reloading.Unlock()
	next, mistake := reg.read()
	out, domains := reg.showShared(next, mistake)
	for _, c := range domains {
		reg.mu.Lock()
		if dom := reg.domains[c.Name]; dom != nil {
			out.Tables = append(out.Tables, dom.domainTable())
		}
		reg.mu.Unlock()
	}
	for _, k := range configs.Keys(reg.opt.Accept) {
		out.Keys = append(out.Keys, control.SettingKey(k))
	}
	return out
}

// showShared describes the configuration without the domains, which it returns.
func (reg *Registry) showShared(next *configs.Config, mistake error) (control.Config, []configs.Domain) {
	reg.mu.Lock()
	defer reg.mu.Unlock()
	out := control.Config{Config: reg.opt.ConfigPath, Tables: []control.Table{reg.daemonTable()}}
	api := show(shared(reg.opt.Config)[1])
	out.Tables = append(out.Tables, api, show(reg.config.TemplateTable()))
	for _, a := range reg.accelerators {
		out.Tables = append(out.Tables, reg.acceleratorTable(a))
	}
	out.Reload = reg.pending(next, mistake)
	return out, reg.config.Domains
}

// read reads the files of the configuration; nil: there are none.
func (reg *Registry) read() (*configs.Config, error) {
	if reg.opt.ConfigPath == "" {
		return nil, nil
	}
	return configs.Load(reg.opt.ConfigPath, reg.opt.Accept)
}

// pending describes what a reload of a configuration that was just read would change. Registry.mu is held.
func (reg *Registry) pending(next *configs.Config, err error) control.Pending {
	p := control.Pending{Changes: []control.PendingChange{}, Mistakes: []control.Mistake{}}
	if next != nil && err == nil {
		for _, a := range reg.accelerators {
			if _, wrong := planAccelerator(next, a, reg.opt.Accept); wrong != nil {
				err = errors.Join(err, wrong)
			}
		}
	}
	var all configs.Errors
	switch {
	case errors.As(err, &all):
		for _, e := range all {
			p.Mistakes = append(p.Mistakes, control.Mistake{File: e.File, Line: e.Line, Text: e.Error()})
		}
	case err != nil:
		p.Mistakes = append(p.Mistakes, control.Mistake{Text: err.Error()})
	case next != nil:
		p.Warnings = next.Warnings
		for _, c := range reg.changes(next) {
			at := next.PlaceOf(c)
			p.Changes = append(p.Changes, control.PendingChange{Text: c.String(), Restart: !c.Hot, File: at.File, Line: at.Line})
		}
	}
	return p
}

// changes returns the changes that a configuration makes to the settings in force. Registry.mu is held.
func (reg *Registry) changes(next *configs.Config) (all []configs.Change) {
	for _, c := range configs.Diff(reg.running(), next) {
		old := c.Old
		c.Old = reg.inForce(c)
		if c.Table == "daemon" && c.Key == "log_level" && reg.opt.LogLevel != "" {
			c.New = strconv.Quote(reg.opt.LogLevel) // it goes before the configuration
		}
		if c.Old == c.New && c.New != old {
			continue // set before to the value that the files have now
		}
		if dom := reg.domains[c.Name]; dom != nil && c.Table == "domain" {
			for _, p := range dom.programs {
				if _, ok := p.Set[c.Key]; ok {
					c.New += fmt.Sprintf(" when process %d has ended", p.PID)
					break
				}
			}
		}
		all = append(all, c)
	}
	return all
}

// running returns the configuration in force without the settings of `pegasus set`, `policy` and `log`. Registry.mu is
// held.
func (reg *Registry) running() *configs.Config {
	c := *reg.config
	c.API = reg.opt.Config.API
	c.Daemon = reg.opt.Config.Daemon.Following(c.Daemon)
	c.Accelerators = nil
	for _, a := range reg.accelerators {
		c.Accelerators = append(c.Accelerators, tableOf(reg.config, a))
	}
	return &c
}

// inForce returns the value that a reload would replace: that of `pegasus set`, `policy` or `log`, if there is one.
// Registry.mu is held.
func (reg *Registry) inForce(c configs.Change) string {
	switch c.Table {
	case "daemon":
		if c.Key == "log_level" {
			return strconv.Quote(reg.logLevel())
		}
	case "domain":
		if dom := reg.domains[c.Name]; dom != nil && c.Key != "" {
			return dom.settings.Get(c.Key)
		}
	case "accelerator":
		if i := slices.IndexFunc(reg.accelerators, func(a *accelerator) bool { return a.Name == c.Name }); i >= 0 && c.Key != "" {
			settings := reg.accelerators[i].Settings()
			return settings.Get(c.Key)
		}
	}
	return c.Old
}

// keepSettings returns a program's settings as those of a domain, after the program has ended.
func (dom *domain) keepSettings(p program, file configs.Domain) {
	for _, k := range slices.Sorted(maps.Keys(p.Set)) {
		dom.set[k] = setting{Value: p.Set[k], File: file.Get(k), By: &control.Caller{UID: p.UID, PID: p.PID}, At: time.Now().Round(0)}
	}
}
