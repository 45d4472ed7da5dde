package cpus

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"syscall"
	"time"

	"pegasus/hypervisor"
	"pegasus/hypervisor/raised"
	"pegasus/hypervisor/xen/control"
)

// Raiser implements hypervisor.Raiser with the weights of Xen's domains, which share the CPUs of
// their pool.
//
// Before a weight is changed for the first time it is written down in a directory what
// is set, and which daemon changes it: if that dies, the machine's hub or the next
// daemon puts it back.
type Raiser struct {
	cpus *CPUs
	dir  string
	log  *slog.Logger

	// Under the lock of cpus:
	weights map[string]*raisable // by domain
	told    map[string]string    // by domain: why it can't be changed, as was logged
	used    map[uint16]busyness  // by Xen's number
}

// raisable is a weight that we may change.
type raisable struct {
	id    uint16
	set   int64 // by others
	wrote int64 // by us, last; 0: nothing since set was read
	note  raised.Record
}

// busyness is the CPU time that a domain had used when it was looked at.
type busyness struct {
	used time.Duration
	at   time.Time
}

// Raiser returns the one of this host, which writes down what it changes in dir. From
// now on domains' weights are what is set for them, whatever they have.
func (c *CPUs) Raiser(dir string) *Raiser {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.raiser = &Raiser{cpus: c, dir: dir, log: c.log, weights: make(map[string]*raisable), told: make(map[string]string), used: make(map[uint16]busyness)}
	return c.raiser
}

// Groups implements hypervisor.Raiser: a domain is a group of its own.
func (r *Raiser) Groups(of []hypervisor.Guests) (all []hypervisor.Group) {
	c := r.cpus
	c.mu.Lock()
	defer c.mu.Unlock()
	c.read(false)
	mine := make(map[uint16]bool)
	for _, g := range of {
		if g.Xen == 0 {
			continue
		}
		group, err := r.find(g)
		if err != nil {
			r.complain(g.Domain, err)
			continue
		}
		mine[g.Xen] = true
		all = append(all, group)
	}
	for domain, w := range r.weights {
		if !slices.ContainsFunc(all, func(g hypervisor.Group) bool { return g.Domain == domain }) && w.wrote == 0 {
			r.forget(domain)
		}
	}
	others := r.weighOthers(mine)
	for i := range all {
		all[i].Others = others[all[i].Parent]
	}
	return all
}

// complain says once why a machine's weight isn't changed.
func (r *Raiser) complain(domain string, err error) {
	if r.told[domain] != err.Error() {
		r.told[domain] = err.Error()
		r.log.Warn("the CPU weight of a domU can't follow the accelerator", "domain", domain, "err", err)
	}
}

func (p *pool) name() string { return fmt.Sprintf("CPU pool %d", p.info.ID) }

// find is the group of a machine, with what is set for it now.
func (r *Raiser) find(of hypervisor.Guests) (hypervisor.Group, error) {
	known := r.weights[of.Domain]
	if known == nil || known.id != of.Xen {
		r.forget(of.Domain)
		known = &raisable{id: of.Xen, note: raised.Record{Xen: of.Xen}}
		r.weights[of.Domain] = known
	}
	d, err := r.read(of.Domain, known)
	if err != nil {
		return hypervisor.Group{}, err
	}
	g := hypervisor.Group{Domain: of.Domain, Parent: d.pool.name(), Weight: known.set, Has: known.wrote, Least: 1, Most: control.MaxWeight}
	if g.Has == 0 {
		g.Has = g.Weight
	}
	return g, nil
}

// read sees what is set for a machine: what it has, unless we gave it that. What we wrote
// down of it before, if that was something else, doesn't hold any more.
func (r *Raiser) read(domain string, w *raisable) (*domain, error) {
	d := r.cpus.domains[w.id]
	if d == nil {
		return nil, fmt.Errorf("domain %d: Xen has none of that number", w.id)
	}
	p, err := r.cpus.x.Params(d.pool.info.Scheduler, w.id)
	if err != nil {
		return nil, err
	}
	if has := int64(p.Weight); has != w.wrote {
		w.set, w.wrote = has, 0
	}
	if w.note.Set != w.set {
		w.note.Erase(r.dir, domain)
	}
	return d, nil
}

// Raise implements hypervisor.Raiser.
func (r *Raiser) Raise(domain string, weight int64) (changed bool, err error) {
	r.cpus.mu.Lock()
	defer r.cpus.mu.Unlock()
	if changed, err = r.raise(domain, weight); err != nil {
		r.complain(domain, err)
	} else {
		delete(r.told, domain)
	}
	return changed, err
}

func (r *Raiser) raise(domain string, weight int64) (changed bool, err error) {
	w := r.weights[domain]
	if w == nil {
		return false, fmt.Errorf("domain %q: it is no domU that is known", domain)
	}
	if weight < 1 || weight > control.MaxWeight {
		return false, fmt.Errorf("weight %d of domain %q: want 1 to %d", weight, domain, control.MaxWeight)
	}
	had := w.set
	if w.wrote != 0 {
		had = w.wrote
	}
	d, err := r.read(domain, w)
	if err != nil {
		return false, err
	}
	if w.wrote == 0 && w.set != had {
		return true, nil
	}
	if weight == w.set {
		return false, r.put(d, w, 0, w.set)
	}
	if err := w.note.Note(r.dir, domain, w.set, weight); err != nil {
		return false, err
	}
	return false, r.put(d, w, weight, weight)
}

// put has the hypervisor weigh a domain so.
func (r *Raiser) put(d *domain, w *raisable, wrote, weight int64) error {
	w.wrote = wrote
	if err := r.cpus.x.SetWeight(d.pool.info.Scheduler, w.id, uint16(weight)); err != nil {
		return err
	}
	d.has.Weight = uint16(weight)
	return nil
}

// Restore implements hypervisor.Raiser.
func (r *Raiser) Restore() {
	r.cpus.mu.Lock()
	defer r.cpus.mu.Unlock()
	for domain := range r.weights {
		r.forget(domain)
	}
}

// forget gives a machine back what is set for it.
func (r *Raiser) forget(domain string) {
	w := r.weights[domain]
	if w == nil {
		return
	}
	if w.wrote != 0 {
		if d, err := r.read(domain, w); err == nil && w.wrote != 0 {
			if err := r.put(d, w, 0, w.set); err != nil && !errors.Is(err, syscall.ESRCH) {
				r.log.Warn("give a domU back its CPU weight", "domain", domain, "err", err)
			}
		}
	}
	delete(r.weights, domain)
	w.note.Erase(r.dir, domain)
}

// plain is what is set for a domain that has a weight. We may have written something else since.
func (r *Raiser) plain(id, has uint16) uint16 {
	if r == nil {
		return has
	}
	for _, w := range r.weights {
		if w.id == id && slices.Contains(w.note.Ours, int64(has)) {
			return uint16(w.set)
		}
	}
	return has
}

// someUse is the CPU time, as a part of what passed, that tells a domain which wants CPUs from
// one that rests: 1 %.
const someUse = 100

// weighOthers adds up the weights of those in each pool, by its name, that aren't ours and want
// the CPUs.
func (r *Raiser) weighOthers(mine map[uint16]bool) map[string]int64 {
	now, before := r.cpus.clock(), r.used
	r.used = make(map[uint16]busyness)
	sums := make(map[string]int64)
	for id, d := range r.cpus.domains {
		if mine[id] {
			continue
		}
		used := busyness{d.info.CPUTime, now}
		r.used[id] = used
		was, seen := before[id]
		if seen && (used.used-was.used)*someUse > now.Sub(was.at) {
			sums[d.pool.name()] += int64(d.has.Weight)
		}
	}
	return sums
}

// yield takes a weight that a domain was given for one that is set, even if it is one of ours.
func (r *Raiser) yield(id uint16, weight int64) {
	if r == nil {
		return
	}
	for domain, w := range r.weights {
		if w.id == id {
			w.set, w.wrote = weight, 0
			w.note.Erase(r.dir, domain)
		}
	}
}
