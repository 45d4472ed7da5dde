package backend

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"pegasus/configs"
)

// stateVersion is that of the file. Fields may be added without a new one: those that a daemon
// doesn't know it forgets, those that aren't there are zero.
const stateVersion = 1

// state is what a daemon knows that is in no configuration and with no worker:
// what was created, set and switched while it ran, who keeps domains, and what ended workers used. It is
// written down for the next daemon. What it says of a domain holds as long as something
// keeps the domain.
type state struct {
	Version      int                           `json:"version"`
	Domains      map[string]domainState        `json:"domains"`
	Accelerators map[string]map[string]setting `json:"switched"`
}

type domainState struct {
	Set  map[string]setting `json:"settings,omitempty"`
	Past totals             `json:"past"`
	// InForce is what holds for its guests if the next daemon's configuration
	// doesn't know it.
	InForce  configs.Domain   `json:"in_force"`
	Asked    asked            `json:"created"` // null: it wasn't
	Leases   map[string]lease `json:"leases,omitempty"`
	Programs []program        `json:"programs,omitempty"`
	Machine  bool             `json:"machine,omitempty"`
	Removing bool             `json:"removing,omitempty"`
}

func (d *Daemon) statePath() string { return filepath.Join(d.opt.RuntimeDir, "state.json") }

// save writes the state down if it changed. d.mu is held.
func (d *Daemon) save() error {
	if !d.changed || d.opt.Private {
		return nil
	}
	s := state{stateVersion, map[string]domainState{}, map[string]map[string]setting{}}
	for name, dom := range d.domains {
		s.Domains[name] = domainState{dom.set, dom.past, dom.settings, dom.asked, dom.leases, dom.programs, d.isMachine(dom), dom.removing}
	}
	for _, a := range d.accelerators {
		s.Accelerators[a.name] = a.switched
	}
	if err := writeJSON(d.statePath(), s); err != nil {
		return err
	}
	d.changed = false
	return nil
}

// saveOrWarn is save where nobody waits for what is written. After an error the next sample tries again. d.mu is held.
func (d *Daemon) saveOrWarn() {
	err := d.save()
	if text := fmt.Sprint(err); err != nil && text != d.unsaved {
		d.log.Warn("write down the state", "err", err)
		d.unsaved = text
	} else if err == nil {
		d.unsaved = ""
	}
}

// restore takes up what a daemon before wrote down. Domains get no doors here: openRestored opens those that something
// keeps. d.mu is held.
func (d *Daemon) restore() {
	s, err := d.readState()
	if err != nil {
		aside := d.statePath() + ".unread"
		d.log.Error("read the state that the daemon before wrote; beginning without it", "err", err, "kept", aside)
		if err := os.Rename(d.statePath(), aside); err != nil {
			d.log.Warn("keep that state", "err", err)
		}
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
	for _, name := range slices.Sorted(maps.Keys(s.Domains)) {
		d.restoreDomain(name, s.Domains[name])
	}
	d.changed = true
}

// readState reads the file. One that isn't there is that of a daemon that knew nothing.
func (d *Daemon) readState() (s state, err error) {
	data, err := os.ReadFile(d.statePath())
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &s)
	}
	if err == nil && s.Version > stateVersion {
		err = fmt.Errorf("%s is of version %d, this daemon reads up to %d", d.statePath(), s.Version, stateVersion)
	}
	return s, err
}

// restoreDomain makes a domain what it was, or adds that to what its configuration says. d.mu is held.
func (d *Daemon) restoreDomain(name string, was domainState) {
	dom := d.domains[name]
	if dom == nil {
		if configs.CheckName(name) != nil {
			return
		}
		dom = d.stranger(name, was.InForce)
		dom.removing = was.Removing
		if was.Machine && d.opt.Machines != nil {
			dom.awaited = d.started.Add(machineTime)
			d.awaitTerm(dom.awaited)
		}
	}
	dom.past, dom.asked = was.Past, was.Asked
	for holder, l := range was.Leases {
		d.lend(dom, holder, l)
	}
	for _, p := range was.Programs {
		if is, pidfd, err := identify(p.PID); err == nil && is == p.process {
			d.keep(dom, is, pidfd, p.Set)
		} else if err == nil {
			pidfd.Close()
		}
	}
	if file, err := d.settingsOf(d.config, name); err == nil {
		dom.set = was.Set
		next := d.planDomain(d.config, dom, file)
		dom.set = next.set
		d.apply(dom, next.settings)
	}
}

// openRestored opens the doors of restored domains, and drops those that nothing keeps: who kept them ended while
// nobody watched. d.mu is held.
func (d *Daemon) openRestored() {
	d.soonest = d.started // what has expired meanwhile
	d.expire(time.Now())
	for _, dom := range d.domains {
		if d.retire(dom) || dom.door != nil || !d.admits(dom) {
			continue
		}
		if err := d.enter(dom); err != nil {
			d.log.Error("a domain can't be entered", "domain", dom.name, "err", err)
		}
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
