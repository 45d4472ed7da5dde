package backend

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// state is what a daemon knows that is in no configuration and with no worker:
// what was set and switched while it ran, and what ended workers used. It is
// written down for a daemon that takes over guests; one that finds none begins
// anew, from its configuration.
type state struct {
	Domains      map[string]domainState      `json:"domains"`
	Accelerators map[string]acceleratorState `json:"accelerators"`
}

type domainState struct {
	Set  map[string]string `json:"set,omitempty"`
	Past totals            `json:"past"`
}

type acceleratorState struct {
	Policy string `json:"policy"`
	Mode   string `json:"mode"`
}

func (d *Daemon) statePath() string { return filepath.Join(d.opt.RuntimeDir, "state.json") }

// save writes the state down if it changed. d.mu is held.
func (d *Daemon) save() {
	if !d.changed || d.opt.Private {
		return
	}
	d.changed = false
	s := state{map[string]domainState{}, map[string]acceleratorState{}}
	for name, dom := range d.domains {
		s.Domains[name] = domainState{dom.set, dom.past}
	}
	for _, a := range d.accelerators {
		c := a.current()
		s.Accelerators[a.name] = acceleratorState{c.Policy, c.Mode}
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
		if was, ok := s.Accelerators[a.name]; ok {
			c := a.current()
			err := errors.Join(c.Set("policy", was.Policy, d.opt.Accept), c.Set("mode", was.Mode, d.opt.Accept))
			if err == nil {
				err = a.configure(c)
			}
			if err != nil {
				d.log.Warn("a switched policy is lost", "accelerator", a.name, "err", err)
			}
		}
	}
	for name, was := range s.Domains {
		dom, err := d.domain(name)
		if err != nil {
			continue
		}
		dom.past = was.Past
		if err := d.setLocked(dom, was.Set); err != nil {
			d.log.Warn("settings are lost", "domain", name, "err", err)
		}
	}
}
