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
	Daemon       map[string]setting            `json:"daemon,omitempty"` // of [daemon], changed meanwhile
	// Accounts are the balances of domains, by accelerator and domain.
	Accounts map[string]map[string]policies.Balances `json:"accounts,omitempty"`
	// First is nil, except in the format of the first releases, which is not read.
	First json.RawMessage `json:"accelerators,omitempty"`
}

// domainState is a domain's part of the state.
type domainState struct {
	Set  map[string]setting `json:"settings,omitempty"`
	Past totals             `json:"past"`
	// Booked is the part of its account that Past includes.
	Booked booked `json:"booked"`
	// InForce are its settings, used for its guests if the next daemon's configuration does not declare it.
	InForce   configs.Domain   `json:"in_force"`
	Requested requested        `json:"created"` // null: create did not make the domain
	Creation  creation         `json:"creation,omitzero"`
	Leases    map[string]lease `json:"leases,omitempty"`
	Programs  []program        `json:"programs,omitempty"`
	Machine   bool             `json:"machine,omitempty"`
	Removing  bool             `json:"removing,omitempty"`
}

// store saves the state for the next daemon and restores that of the previous one. Registry.mu guards its fields.
type store struct {
	reg     *Registry
	changed bool                                    // since the state was last saved
	unsaved string                                  // why the state could not be saved
	saved   map[string]map[string]policies.Balances // the accounts as last saved
}

func (st *store) statePath() string {
	reg := st.reg
	return filepath.Join(reg.opt.RuntimeDir, "state.json")
}

// save writes the state if it changed, and closes the accounts of detached domains. Registry.mu is held.
func (st *store) save() error {
	reg := st.reg
	if !reg.store.changed && (reg.opt.Private || !st.drifted()) {
		return nil
	}
	if !reg.opt.Private {
		if err := st.writeState(); err != nil {
			return err
		}
	}
	reg.store.changed = false
	for _, dom := range reg.domains {
		if dom.on == nil {
			dom.closeAccount()
		}
	}
	return nil
}

func (st *store) writeState() error {
	reg := st.reg
	reg.store.saved = st.accounts()
	s := state{stateVersion, map[string]domainState{}, map[string]map[string]setting{}, reg.set, reg.store.saved, nil}
	for name, dom := range reg.domains {
		if dom.account != nil {
			dom.book(dom.account)
		}
		s.Domains[name] = domainState{dom.set, dom.past, dom.booked, dom.settings, dom.requested, dom.creation, dom.leases, dom.programs, dom.isMachine(), dom.removing}
	}
	for _, a := range reg.accelerators {
		s.Accelerators[a.Name] = a.switched
	}
	return statefile.Write(st.statePath(), s)
}

// saveOrWarn is save with errors in the log. The next sample retries after an error. Registry.mu is held.
func (st *store) saveOrWarn() {
	reg := st.reg
	err := st.save()
	if text := fmt.Sprint(err); err != nil && text != reg.store.unsaved {
		reg.log.Warn("save state failed; retrying", "err", err)
		reg.store.unsaved = text
	} else if err == nil {
		reg.store.unsaved = ""
	}
}

// restore reads the state of the previous daemon. It opens no endpoints: openRestored does, after all owners are
// restored. Registry.mu is held.
func (st *store) restore() {
	reg := st.reg
	s, err := st.readState()
	if err != nil {
		aside := st.statePath() + ".unread"
		reg.log.Error("read the state of the previous daemon failed; starting without it", "err", err, "kept", aside)
		if err := os.Rename(st.statePath(), aside); err != nil {
			reg.log.Warn("rename the unread state file failed", "err", err)
		}
		return
	}
	for _, a := range reg.accelerators {
		a.switched = s.Accelerators[a.Name]
		next, err := planAccelerator(reg.config, a, reg.opt.Accept)
		if err != nil {
			reg.log.Warn("restore a switched policy failed; keeping the configured one", "accelerator", a.Name, "err", err)
			a.switched = map[string]setting{}
			continue
		}
		a.Configure(next.settings, next.policy)
		a.switched = next.switched
	}
	reg.set = standing(s.Daemon, reg.config.Daemon.Get)
	reg.applyLogLevel()
	st.restoreAccounts(&s)
	for _, name := range slices.Sorted(maps.Keys(s.Domains)) {
		st.restoreDomain(name, s.Domains[name])
	}
	reg.store.changed = true
}

// readState returns the content of the file; a missing file is an empty state.
func (st *store) readState() (s state, err error) {
	data, err := os.ReadFile(st.statePath())
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return s, err
	}
	switch err := json.Unmarshal(data, &s); {
	case err != nil:
		return s, fmt.Errorf("%s: %w", st.statePath(), err)
	case s.Version > stateVersion:
		return s, fmt.Errorf("%s: version %d, this daemon reads up to %d; end it, give the file its name back, and start the later release", st.statePath(), s.Version, stateVersion)
	case s.First != nil:
		return s, fmt.Errorf("%s: of a release that this daemon does not read; repeat changes of settings and policies (pegasus set, pegasus policy)", st.statePath())
	}
	return s, nil
}

// restoreDomain restores a domain and its owners, or adds them to a declared domain. Registry.mu is held.
func (st *store) restoreDomain(name string, was domainState) {
	reg := st.reg
	dom := reg.domains[name]
	if dom == nil {
		if configs.CheckName(name) != nil {
			return
		}
		dom = reg.newUndeclared(name, was.InForce)
		dom.removing = was.Removing
		if was.Machine && reg.opt.Machines != nil {
			dom.awaited = reg.started.Add(machineTime)
			reg.awaitTerm(dom.awaited)
		}
	}
	dom.past, dom.booked, dom.requested, dom.creation = was.Past, was.Booked, was.Requested, was.Creation
	for holder, l := range was.Leases {
		dom.setLease(holder, l)
	}
	for _, p := range was.Programs {
		if is, file, err := identify(p.PID); err == nil && is == p.process {
			dom.addProgram(program{process: is, UID: p.UID, Set: p.Set}, file)
		} else if err == nil {
			file.Close()
		}
	}
	if file, err := reg.settingsOf(reg.config, name); err == nil {
		dom.set = was.Set
		next := dom.plan(reg.config, file)
		dom.set = next.set
		dom.apply(next.settings)
	}
}

// openRestored opens the endpoints of restored domains, and ends the domains of owners that ended while no daemon ran.
// Registry.mu is held.
func (st *store) openRestored() {
	reg := st.reg
	reg.soonest = reg.started // leases may have expired meanwhile
	reg.expire(time.Now())
	for _, dom := range reg.domains {
		if dom.endIfUnowned() || dom.endpoint != nil || !dom.admits() {
			continue
		}
		if err := dom.enter(); err != nil {
			reg.log.Error("open the endpoint of a restored domain failed", "domain", dom.name, "err", err)
		}
	}
}

// newUndeclared makes a domain that the configuration does not declare, for its guests of the previous daemon. Registry.mu
// is held.
func (reg *Registry) newUndeclared(name string, s configs.Domain) *domain {
	if s.Name != name { // no state has its settings
		s = reg.config.Template
		s.Name = name
	}
	dom := newDomain(reg, s, false)
	reg.domains[name] = dom
	return dom
}
