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
	// Booked is the part of its account that Past has.
	Booked booked `json:"booked"`
	// InForce is what holds for its guests if the next daemon's configuration
	// doesn't know it.
	InForce configs.Domain `json:"in_force"`
}

func (d *Daemon) statePath() string { return filepath.Join(d.opt.RuntimeDir, "state.json") }

// save writes the state down if it changed, and closes the accounts of domains that have left. d.mu is held.
func (d *Daemon) save() {
	if !d.changed {
		return
	}
	d.changed = false
	if !d.opt.Private {
		d.writeState()
	}
	for _, dom := range d.domains {
		if dom.on == nil {
			dom.closeAccount()
		}
	}
}

func (d *Daemon) writeState() {
	s := state{map[string]domainState{}, map[string]map[string]setting{}}
	for name, dom := range d.domains {
		if dom.account != nil {
			dom.book(dom.account)
		}
		s.Domains[name] = domainState{dom.set, dom.past, dom.booked, dom.settings}
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
			dom := d.stranger(name, was.InForce)
			dom.past, dom.booked = was.Past, was.Booked
			continue
		}
		dom, err := d.domain(name)
		if err != nil {
			continue
		}
		dom.past, dom.booked, dom.set = was.Past, was.Booked, was.Set
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
