package sched

import (
	"time"

	"pegasus/backend/gate"
	"pegasus/backend/hardware"
	"pegasus/configs"
	"pegasus/policies"
	"pegasus/vcpu"
)

// accountIDs gives each domain the ID by which the policy keeps its account. The accelerator's mu is held during every
// call.
type accountIDs struct {
	feed
	ids     map[string]vcpu.ID // by name: attached domains, and detached ones with a kept account
	nextID  vcpu.ID
	passing func(name string) bool // set by SetPassing; nil: no name takes over an account
}

// idOf returns the scheduler's ID for a domain that attaches: its previous ID, if the scheduler still keeps its
// account. A new name costs nothing for a domain that only its processes own, so such a domain takes over the ID, and
// with it the account, of the detached domain of that kind with the largest debt.
func (k *accountIDs) idOf(name string) vcpu.ID {
	for n, id := range k.ids {
		if _, ok := k.sched.Balances(id); !ok {
			delete(k.ids, n)
		}
	}
	if id, ok := k.ids[name]; ok {
		return id
	}
	id, old := k.largestDebt(name)
	if id == 0 {
		k.nextID++
		id = k.nextID
	}
	delete(k.ids, old)
	k.ids[name] = id
	return id
}

// largestDebt returns the account that a new name takes over, of a domain that only its processes own; 0: none.
func (k *accountIDs) largestDebt(name string) (id vcpu.ID, old string) {
	if k.passing == nil || !k.passing(name) {
		return 0, ""
	}
	names := make(map[vcpu.ID]string, len(k.ids))
	for n, id := range k.ids {
		names[id] = n
	}
	var most time.Duration
	for _, absent := range k.sched.Absent(nil) {
		debt := -(absent.Balances[0] + absent.Balances[1])
		if n, ok := names[absent.ID]; ok && debt > most && k.passing(n) {
			id, old, most = absent.ID, n, debt
		}
	}
	return id, old
}

// Balances returns the nonzero accounts, by domain.
func (a *Accelerator) Balances() map[string]policies.Balances {
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

// RestoreAccount restores the account of a domain that is not attached, and may never be.
func (a *Accelerator) RestoreAccount(c configs.Domain, b policies.Balances) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, known := a.ids[c.Name]; known {
		return
	}
	a.nextID++
	a.ids[c.Name] = a.nextID
	now := a.now()
	a.step(now, policies.Event{Kind: policies.Attach, Domain: sharesOf(a.nextID, c, 0), Balances: b})
	a.step(now, policies.Event{Kind: policies.Detach, Domain: policies.Domain{ID: a.nextID}})
}

// Balance returns for how long engines were held by ended work, and for how long of that no domain was charged. It
// first charges the use since the latest sample, so the second result is 0.
func (a *Accelerator) Balance() (held, uncharged int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	held = a.Hardware.BusyTime()
	now := a.now()
	for _, m := range a.members {
		total := m.account.Total()
		a.sampleGate(now, m)
		total.Add(m.account.Charged(), -1)
		uncharged += max(total.Compute, 0) + max(total.CopyIn, 0) + max(total.CopyOut, 0)
	}
	return held, uncharged
}

// ChargeAbsent charges a domain for its use while no daemon ran, after the domain has left.
func (a *Accelerator) ChargeAbsent(c configs.Domain, account hardware.Account) {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := account.Charge(burst(a.settings))
	if t.Sum() == 0 {
		return
	}
	id, known := a.ids[c.Name]
	now := a.now()
	if !known {
		a.nextID++
		id = a.nextID
		a.ids[c.Name] = id
		a.step(now, policies.Event{Kind: policies.Attach, Domain: sharesOf(id, c, 0)})
		defer a.step(now, policies.Event{Kind: policies.Detach, Domain: policies.Domain{ID: id}})
	}
	a.charge(now, &Attachment{ID: id}, vcpu.Usage{Compute: time.Duration(t.Compute), Copy: time.Duration(t.Copies())}, [gate.NumClasses]uint64{})
}
