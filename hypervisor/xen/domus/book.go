package domus

import (
	"log/slog"
	"maps"
	"slices"
	"time"

	"pegasus/hypervisor"
	"pegasus/hypervisor/xen/control"
)

// book is the state of all domUs.
type book struct {
	log    *slog.Logger
	named  bool                 // XenStore has answered
	names  map[uint16]string    // XenStore's last names of the hypervisor's domUs
	missed map[uint16]time.Time // since when XenStore lacks a domU's name; zero: and that was logged
	last   map[string]entry     // those reported last, by name
	served map[string]uint16    // domUs that had hubs of an earlier daemon, by name
	twins  map[string]bool      // names of several domUs, as logged
	boots  uint64
}

// entry is a domU as last reported.
type entry struct {
	id   uint16
	boot uint64
}

// newBook begins with the domUs that have hubs already: their names until XenStore has them, and which domU a name
// means if several have it.
func newBook(served map[uint16]string, log *slog.Logger) *book {
	b := &book{log: log, names: map[uint16]string{}, missed: map[uint16]time.Time{}, last: map[string]entry{}, served: map[string]uint16{}, twins: map[string]bool{}}
	for id, name := range served {
		b.names[id], b.served[name] = name, id
	}
	return b
}

// endTime is how long XenStore may lack a domU that the hypervisor has: an ending domU is removed there first.
const endTime = 2 * readEvery

// name applies the names in XenStore. A domU that is missing there keeps its name for as long as the hypervisor has the
// domU: a restarted XenStore has lost all names.
func (b *book) name(all map[uint16]string, now time.Time) {
	b.named = true
	for id, name := range b.names {
		if all[id] != "" {
			delete(b.missed, id)
			continue
		}
		since, ok := b.missed[id]
		switch {
		case !ok:
			b.missed[id] = now
		case !since.IsZero() && now.Sub(since) >= endTime:
			b.missed[id] = time.Time{}
			b.log.Warn("domU missing from XenStore but known to the hypervisor; keeping last known state", "domain", name, "domid", id)
		}
	}
	maps.Copy(b.names, all)
}

// enter applies the hypervisor's domains, and returns the attached machines, by name.
func (b *book) enter(attached []Attachment, domains []control.Domain) []hypervisor.Machine {
	alive := map[uint16]control.Domain{}
	of := map[string][]control.Domain{}
	for _, d := range domains {
		if name := b.names[d.ID]; d.ID != 0 && name != "" && d.Flags&control.DomainDying == 0 {
			alive[d.ID] = d
			of[name] = append(of[name], d)
		}
	}
	for id := range b.names {
		if _, ok := alive[id]; !ok { // its number may be reused
			delete(b.names, id)
			delete(b.missed, id)
		}
	}
	all := make([]hypervisor.Machine, 0, len(attached))
	for _, a := range attached {
		m := hypervisor.Machine{Domain: a.Name, Host: hypervisor.XenHost, State: hypervisor.MachineOff, Memory: a.Memory, Credits: a.Credits}
		b.renamed(a.Name)
		if d, ok := b.choose(a.Name, of[a.Name]); ok {
			m.Xen, m.State = d.ID, stateOf(d)
		}
		m.Boot = b.boot(m)
		if m.State == hypervisor.MachineOff {
			m.Xen = 0
		}
		all = append(all, m)
	}
	b.forget(attached)
	return all
}

// choose returns the domU that a name means: the one that had it before, also under an earlier daemon, else the
// oldest. A running domU has precedence over one that has shut down and is kept for inspection.
func (b *book) choose(name string, of []control.Domain) (control.Domain, bool) {
	had := b.last[name].id
	if had == 0 {
		had = b.served[name]
	}
	delete(b.served, name) // from now on the name is in last
	if len(of) == 0 {
		return control.Domain{}, false
	}
	rank := func(d control.Domain) int {
		switch {
		case stateOf(d) == hypervisor.MachineOff:
			return 2
		case d.ID != had:
			return 1
		}
		return 0
	}
	slices.SortStableFunc(of, func(x, y control.Domain) int { return rank(x) - rank(y) })
	several := len(of) > 1 && rank(of[1]) < 2
	if several && !b.twins[name] {
		b.log.Warn("several domUs have one name: the first is served, the others aren't. Rename them (xl rename)", "domain", name, "domid", of[0].ID, "other", of[1].ID)
	}
	b.twins[name] = several
	return of[0], true
}

// renamed logs that a served domU has another name now.
func (b *book) renamed(name string) {
	id := b.last[name].id
	if is := b.names[id]; id != 0 && is != "" && is != name {
		b.log.Info("a domU was renamed, and is served no more by its old name: attach it by the new one, if it isn't", "domain", name, "now", is, "domid", id)
	}
}

// boot returns a machine's boot number, a new one whenever it is another domain, or was off.
func (b *book) boot(m hypervisor.Machine) uint64 {
	if m.State == hypervisor.MachineOff {
		delete(b.last, m.Domain)
		return 0
	}
	e, ok := b.last[m.Domain]
	if !ok || e.id != m.Xen {
		b.boots++
		e = entry{m.Xen, b.boots}
		b.last[m.Domain] = e
	}
	return e.boot
}

// forget removes the domUs that aren't attached any more.
func (b *book) forget(attached []Attachment) {
	still := map[string]bool{}
	for _, a := range attached {
		still[a.Name] = true
	}
	maps.DeleteFunc(b.last, func(name string, _ entry) bool { return !still[name] })
	maps.DeleteFunc(b.twins, func(name string, _ bool) bool { return !still[name] })
}

// shutdownSuspend is the shutdown reason of a domain that is being saved or migrated: it may resume.
const shutdownSuspend = 2

// stateOf returns the state of a domain that isn't dying.
func stateOf(d control.Domain) hypervisor.MachineState {
	const reasonShift, reasonMask = 16, 0xff
	switch {
	case d.Flags&control.DomainShutdown != 0 && d.Flags>>reasonShift&reasonMask != shutdownSuspend:
		return hypervisor.MachineOff
	case d.Flags&(control.DomainShutdown|control.DomainPaused) != 0:
		return hypervisor.MachinePaused
	}
	return hypervisor.MachineRunning
}
