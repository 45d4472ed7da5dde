package guests

import (
	"time"

	"pegasus/policies"
)

// An account of accelerator time belongs to a domain, by name: the scheduler keeps it by ID while the domain has no
// process, and the state file keeps it while no daemon runs.

// accountDrift is the change of an account after which the state is saved again.
const accountDrift = 100 * time.Millisecond

// restoreAccounts restores the accounts that the previous daemon saved. Registry.mu is held.
func (st *store) restoreAccounts(s *state) {
	reg := st.reg
	for _, a := range reg.accelerators {
		for name, b := range s.Accounts[a.Name] {
			c, err := reg.settingsOf(reg.config, name)
			if err != nil { // it admits no process, but its debt stays
				c = reg.config.Template
				c.Name = name
			}
			a.RestoreAccount(c, b)
		}
	}
	reg.store.changed = true
}

// accounts returns the accounts of all accelerators. Registry.mu is held.
func (st *store) accounts() map[string]map[string]policies.Balances {
	reg := st.reg
	all := map[string]map[string]policies.Balances{}
	for _, a := range reg.accelerators {
		all[a.Name] = a.Balances()
	}
	return all
}

// drifted reports whether accounts have changed by accountDrift since they were saved. Registry.mu is held.
func (st *store) drifted() bool {
	reg := st.reg
	if reg.opt.Private {
		return false
	}
	for name, now := range st.accounts() {
		then := reg.store.saved[name]
		for domain, b := range now {
			if apart(b, then[domain]) {
				return true
			}
		}
		for domain, b := range then {
			if apart(b, now[domain]) {
				return true
			}
		}
	}
	return false
}

func apart(b, c policies.Balances) bool {
	return max((b[0]-c[0]).Abs(), (b[1]-c[1]).Abs()) >= accountDrift
}
