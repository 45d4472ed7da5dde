package backend

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"pegasus/configs"
)

// state is what a daemon knows that is in no configuration and with no worker:
// what was set and switched while it ran, and what ended workers used. It is
// written down for a daemon that takes over guests; one that finds none begins
// anew, from its configuration.
type state struct {
	Domains      map[string]domainState        `json:"domains"`
	Accelerators map[string]map[string]setting `json:"switched"`
}

type domainState struct {
	Set  map[string]setting `json:"settings,omitempty"`
	Past totals             `json:"past"`
	// InForce is what holds for its guests if the next daemon's configuration
	// doesn't know it.
	InForce configs.Domain `json:"in_force"`
}

func (d *Daemon) statePath() string { return filepath.Join(d.opt.RuntimeDir, "state.json") }

// save writes the state down if it changed. d.mu is held.
func (d *Daemon) save() {
	if !d.changed || d.opt.Private {
		return
	}
	d.changed = false
	s := state{map[string]domainState{}, map[string]map[string]setting{}}
	for name, dom := range d.domains {
		s.Domains[name] = domainState{dom.set, dom.past, dom.settings}
	}
	for _, a := range d.accelerators {
		s.Accelerators[a.name] = a.switched
	}
	if err := writeJSON(d.statePath(), s); err != nil {
		d.log.Warn("write down the state", "err", err)
	}
}

// restore takes up what a daemon before wrote down. d.mu is held.
func (d *Daemon) restore() {
	data, err := os.ReadFile(d.statePath())
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	var s state
	if err == nil {
		err = json.Unmarshal(data, &s)
	}
	if err != nil {
		d.log.Warn("what the daemon before knew is lost", "err", err)
		return
	}
	for _, a := range d.accelerators {
		a.switched = s.Accelerators[a.name]
		next, err := d.planAccelerator(d.config, a)
		if err != nil {
			d.log.Warn("a switched policy is lost", "accelerator", a.name, "err", err)
			a.switched = map[string]setting{}
			continue
		}
		a.configure(next.settings, next.policy)
		a.switched = next.switched
	}
	for name, was := range s.Domains {
		file, err := d.settingsOf(d.config, name)
		if err != nil {
			d.stranger(name, was.InForce).past = was.Past
			continue
		}
		dom, err := d.domain(name)
		if err != nil {
			continue
		}
		dom.past, dom.set = was.Past, was.Set
		next := d.planDomain(d.config, dom, file)
		dom.set = next.set
		d.apply(dom, next.settings)
	}
}

// stranger makes a domain that the configuration doesn't know, for the guests
// that it may have from before. d.mu is held.
func (d *Daemon) stranger(name string, s configs.Domain) *domain {
	if s.Name != name { // nobody wrote them down
		s = d.config.Template
		s.Name = name
	}
	dom := newDomain(s, false)
	d.domains[name] = dom
	return dom
}
