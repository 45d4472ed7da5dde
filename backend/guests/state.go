package guests

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

	"pegasus/backend/statefile"
	"pegasus/configs"
	"pegasus/policies"
)

// stateVersion is the version of the file. A new field needs no new version: an older daemon ignores the field, and
// an older file leaves it zero.
const stateVersion = 1

// state is the part of the daemon's state that neither the configuration nor a worker has: created domains, their
// owners, changed settings and policies, and the usage of ended workers. The next daemon restores it. The state of
// a domain lasts as long as the domain.
type state struct {
	Version      int                           `json:"version"`
	Domains      map[string]domainState        `json:"domains"`
	Accelerators map[string]map[string]setting `json:"switched"`
	// Accounts are the balances of domains, by accelerator and domain.
	Accounts map[string]map[string]policies.Balances `json:"accounts,omitempty"`
}

// domainState is a domain's part of the state.
type domainState struct {
	Set  map[string]setting `json:"settings,omitempty"`
	Past totals             `json:"past"`
	// Booked is the part of its account that Past includes.
	Booked booked `json:"booked"`
	// InForce are its settings, used for its guests if the next daemon's configuration does not declare it.
	InForce  configs.Domain   `json:"in_force"`
	Asked    asked            `json:"created"` // null: create did not make the domain
	Leases   map[string]lease `json:"leases,omitempty"`
	Programs []program        `json:"programs,omitempty"`
	Machine  bool             `json:"machine,omitempty"`
	Removing bool             `json:"removing,omitempty"`
}

// store saves the state for the next daemon and restores that of the previous one. Registry.mu guards its fields.
type store struct {
	reg     *Registry
	changed bool                                    // since the state was last saved
	unsaved string                                  // why the state could not be saved
	saved   map[string]map[string]policies.Balances // the accounts as last saved
}

func (st *store) statePath() string {
	d := st.reg
	return filepath.Join(d.opt.RuntimeDir, "state.json")
}

// save writes the state if it changed, and closes the accounts of detached domains. d.mu is held.
func (st *store) save() error {
	d := st.reg
	if !d.store.changed && (d.opt.Private || !st.drifted()) {
		return nil
	}
	if !d.opt.Private {
		if err := st.writeState(); err != nil {
			return err
		}
	}
	d.store.changed = false
	for _, dom := range d.domains {
		if dom.on == nil {
			dom.closeAccount()
		}
	}
	return nil
}

func (st *store) writeState() error {
	d := st.reg
	d.store.saved = st.accounts()
	s := state{stateVersion, map[string]domainState{}, map[string]map[string]setting{}, d.store.saved}
	for name, dom := range d.domains {
		if dom.account != nil {
			dom.book(dom.account)
		}
		s.Domains[name] = domainState{dom.set, dom.past, dom.booked, dom.settings, dom.asked, dom.leases, dom.programs, dom.isMachine(), dom.removing}
	}
	for _, a := range d.accelerators {
		s.Accelerators[a.Name] = a.switched
	}
	return statefile.Write(st.statePath(), s)
}

// saveOrWarn is save with errors in the log. The next sample retries after an error. d.mu is held.
func (st *store) saveOrWarn() {
	d := st.reg
	err := st.save()
	if text := fmt.Sprint(err); err != nil && text != d.store.unsaved {
		d.log.Warn("write down the state", "err", err)
		d.store.unsaved = text
	} else if err == nil {
		d.store.unsaved = ""
	}
}

// restore reads the state of the previous daemon. It opens no doors: openRestored does, after all owners are restored.
// d.mu is held.
func (st *store) restore() {
	d := st.reg
	s, err := st.readState()
	if err != nil {
		aside := st.statePath() + ".unread"
		d.log.Error("read the state of the daemon before: failed; starting without it", "err", err, "kept", aside)
		if err := os.Rename(st.statePath(), aside); err != nil {
			d.log.Warn("keep the unread state aside", "err", err)
		}
		return
	}
	for _, a := range d.accelerators {
		a.switched = s.Accelerators[a.Name]
		next, err := d.planAccelerator(d.config, a)
		if err != nil {
			d.log.Warn("a switched policy is lost", "accelerator", a.Name, "err", err)
			a.switched = map[string]setting{}
			continue
		}
		a.Configure(next.settings, next.policy)
		a.switched = next.switched
	}
	st.restoreAccounts(&s)
	for _, name := range slices.Sorted(maps.Keys(s.Domains)) {
		st.restoreDomain(name, s.Domains[name])
	}
	d.store.changed = true
}

// readState returns the content of the file; a missing file is an empty state.
func (st *store) readState() (s state, err error) {
	data, err := os.ReadFile(st.statePath())
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &s)
	}
	if err == nil && s.Version > stateVersion {
		err = fmt.Errorf("%s is of version %d, this daemon reads up to %d", st.statePath(), s.Version, stateVersion)
	}
	return s, err
}

// restoreDomain restores a domain and its owners, or adds them to a declared domain. d.mu is held.
func (st *store) restoreDomain(name string, was domainState) {
	d := st.reg
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
	dom.past, dom.booked, dom.asked = was.Past, was.Booked, was.Asked
	for holder, l := range was.Leases {
		dom.setLease(holder, l)
	}
	for _, p := range was.Programs {
		if is, file, err := identify(p.PID); err == nil && is == p.process {
			dom.addProgram(is, file, p.Set)
		} else if err == nil {
			file.Close()
		}
	}
	if file, err := d.settingsOf(d.config, name); err == nil {
		dom.set = was.Set
		next := dom.plan(d.config, file)
		dom.set = next.set
		dom.apply(next.settings)
	}
}

// openRestored opens the doors of restored domains, and ends domains whose owners ended while no daemon ran.
// d.mu is held.
func (st *store) openRestored() {
	d := st.reg
	d.soonest = d.started // leases may have expired meanwhile
	d.expire(time.Now())
	for _, dom := range d.domains {
		if dom.endIfUnowned() || dom.door != nil || !dom.admits() {
			continue
		}
		if err := dom.enter(); err != nil {
			d.log.Error("a domain can't be entered", "domain", dom.name, "err", err)
		}
	}
}

// stranger makes a domain that the configuration does not declare, for its guests of the previous daemon. d.mu is held.
func (d *Registry) stranger(name string, s configs.Domain) *domain {
	if s.Name != name { // no state has its settings
		s = d.config.Template
		s.Name = name
	}
	dom := newDomain(d, s, false)
	d.domains[name] = dom
	return dom
}
