package domus

import (
	"log/slog"
	"maps"
	"slices"
	"time"

	"pegasus/hypervisor"
	"pegasus/hypervisor/xen/control"
)

// book is what is known of all domUs.
type book struct {
	log    *slog.Logger
	named  bool                 // XenStore has answered
	names  map[uint16]string    // of those that the hypervisor has, as XenStore said last
	missed map[uint16]time.Time // since when XenStore has said nothing of one; zero: and that was said
	last   map[string]entry     // of those that were there, by name
	served map[string]uint16    // which domUs have had hubs since a daemon before, by name
	twins  map[string]bool      // names that several have, as was said
	boots  uint64
}

// entry is a domU as it was last told of.
type entry struct {
	id   uint16
	boot uint64
}

// newBook begins with who is served already: what they are called as long as XenStore doesn't say, and which of several
// of one name that name means.
func newBook(served map[uint16]string, log *slog.Logger) *book {
	b := &book{log: log, names: map[uint16]string{}, missed: map[uint16]time.Time{}, last: map[string]entry{}, served: map[string]uint16{}, twins: map[string]bool{}}
	for id, name := range served {
		b.names[id], b.served[name] = name, id
	}
	return b
}

// endTime is how long XenStore may know nothing of a domU that the hypervisor has: one that ends is gone there first.
const endTime = 2 * readEvery

// name takes down what XenStore has. Of whom it says nothing keeps its name for as long as the
// hypervisor has it: a server that was started anew knows nobody.
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
			b.log.Warn("XenStore doesn't know a domU any more that the hypervisor has: it is taken to be as it was", "domain", name, "domid", id)
		}
	}
	maps.Copy(b.names, all)
}

// enter takes down what the hypervisor has, and returns what all comes to: the attached machines, by name.
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
		if _, ok := alive[id]; !ok { // its number may become another's
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

// choose finds the domU that a name means: that which had it, also for a daemon before, else the one that was there
// first. One that has shut down is only there to be looked at.
func (b *book) choose(name string, of []control.Domain) (control.Domain, bool) {
	had := b.last[name].id
	if had == 0 {
		had = b.served[name]
	}
	delete(b.served, name) // from now on it is in last
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

// renamed says so when a domU that was served has another name now.
func (b *book) renamed(name string) {
	id := b.last[name].id
	if is := b.names[id]; id != 0 && is != "" && is != name {
		b.log.Info("a domU was renamed, and is served no more by its old name: attach it by the new one, if it isn't", "domain", name, "now", is, "domid", id)
	}
}

// boot gives a machine another number whenever it is another domain, or was off.
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

// forget forgets those that aren't attached any more.
func (b *book) forget(attached []Attachment) {
	still := map[string]bool{}
	for _, a := range attached {
		still[a.Name] = true
	}
	maps.DeleteFunc(b.last, func(name string, _ entry) bool { return !still[name] })
	maps.DeleteFunc(b.twins, func(name string, _ bool) bool { return !still[name] })
}

// shutdownSuspend is why a domain has shut down that is being saved, or moved: it may go on.
const shutdownSuspend = 2

// stateOf is what a domain that isn't dying does.
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
