package backend

import (
	"time"

	"pegasus/backend/gate"
	"pegasus/configs"
	"pegasus/policies"
	"pegasus/vcpu"
)

// An account of accelerator time belongs to a domain, by name: the scheduler keeps it by ID while the domain has no
// process, and the state file keeps it while no daemon runs.

// accountDrift is the change of an account after which the state is saved again.
const accountDrift = 100 * time.Millisecond

// idOf returns the scheduler's ID for a domain that attaches: its previous ID, if the scheduler still keeps its
// account. A new name costs nothing for a domain that only its processes own, so such a domain takes over the ID, and
// with it the account, of the detached domain of that kind with the largest debt. a.mu is held.
func (a *accelerator) idOf(name string) vcpu.ID {
	for n, id := range a.ids {
		if _, ok := a.sched.Balances(id); !ok {
			delete(a.ids, n)
		}
	}
	if id, ok := a.ids[name]; ok {
		return id
	}
	id, old := a.largestDebt(name)
	if id == 0 {
		a.nextID++
		id = a.nextID
	}
	delete(a.ids, old)
	a.ids[name] = id
	return id
}

// largestDebt returns the account that a new name takes over, of a domain that only its processes own; 0: none. a.mu is
// held.
func (a *accelerator) largestDebt(name string) (id vcpu.ID, old string) {
	if a.passing == nil || !a.passing(name) {
		return 0, ""
	}
	names := make(map[vcpu.ID]string, len(a.ids))
	for n, id := range a.ids {
		names[id] = n
	}
	var most time.Duration
	for _, absent := range a.sched.Absent(nil) {
		debt := -(absent.Balances[0] + absent.Balances[1])
		if n, ok := names[absent.ID]; ok && debt > most && a.passing(n) {
			id, old, most = absent.ID, n, debt
		}
	}
	return id, old
}

// balances returns the nonzero accounts, by domain.
func (a *accelerator) balances() map[string]policies.Balances {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := map[string]policies.Balances{}
	for name, id := range a.ids {
		if b, ok := a.sched.Balances(id); ok && b != (policies.Balances{}) {
			all[name] = b
		}
	}
	return all
}

// restoreAccount restores the account of a domain that is not attached, and may never be.
func (a *accelerator) restoreAccount(c configs.Domain, b policies.Balances) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, known := a.ids[c.Name]; known {
		return
	}
	a.nextID++
	a.ids[c.Name] = a.nextID
	now := gate.Now()
	a.step(now, policies.Event{Kind: policies.Attach, Domain: sharesOf(a.nextID, c, 0), Balances: b})
	a.step(now, policies.Event{Kind: policies.Detach, Domain: policies.Domain{ID: a.nextID}})
}

// balance returns for how long engines were held by ended work, and for how long of that no domain was charged. It
// first charges the use since the latest sample, so the second result is 0.
func (a *accelerator) balance() (held, uncharged int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	held = a.hw.BusyTime()
	now := gate.Now()
	for _, m := range a.members {
		total := m.account.Total()
		a.look(now, m)
		total.add(m.account.Charged(), -1)
		uncharged += max(total.Compute, 0) + max(total.CopyIn, 0) + max(total.CopyOut, 0)
	}
	return held, uncharged
}

// chargeAbsent charges a domain for its use while no daemon ran, after the domain has left.
func (a *accelerator) chargeAbsent(c configs.Domain, account Account) {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := account.Charge(a.burst())
	if t.sum() == 0 {
		return
	}
	id, known := a.ids[c.Name]
	now := gate.Now()
	if !known {
		a.nextID++
		id = a.nextID
		a.ids[c.Name] = id
		a.step(now, policies.Event{Kind: policies.Attach, Domain: sharesOf(id, c, 0)})
		defer a.step(now, policies.Event{Kind: policies.Detach, Domain: policies.Domain{ID: id}})
	}
	a.charge(now, &avcpu{id: id}, vcpu.Usage{Compute: time.Duration(t.Compute), Copy: time.Duration(t.copies())}, [gate.NumClasses]uint64{})
}

// restoreAccounts restores the accounts that the previous daemon saved. d.mu is held.
func (d *Daemon) restoreAccounts(s *state) {
	for _, a := range d.accelerators {
		for name, b := range s.Accounts[a.name] {
			c, err := d.settingsOf(d.config, name)
			if err != nil { // it admits no process, but its debt stays
				c = d.config.Template
				c.Name = name
			}
			a.restoreAccount(c, b)
		}
	}
	d.changed = true
}

// accounts returns the accounts of all accelerators. d.mu is held.
func (d *Daemon) accounts() map[string]map[string]policies.Balances {
	all := map[string]map[string]policies.Balances{}
	for _, a := range d.accelerators {
		all[a.name] = a.balances()
	}
	return all
}

// drifted reports whether accounts have changed by accountDrift since they were saved. d.mu is held.
func (d *Daemon) drifted() bool {
	if d.opt.Private {
		return false
	}
	for name, now := range d.accounts() {
		then := d.saved[name]
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
