package cpus

import (
	"errors"
	"fmt"
	"slices"
	"syscall"

	"pegasus/hypervisor"
	"pegasus/hypervisor/weightjournal"
	"pegasus/hypervisor/xen/control"
)

// Raiser implements hypervisor.Raiser with the weights of Xen's domains, which share the CPUs of their pool.
type Raiser struct {
	cpus *CPUs

	// Under the lock of cpus:
	weights *weightjournal.Weights
	use     weightjournal.Use[uint16] // by domain number
}

// Raiser returns the Raiser of this host, which keeps its records in dir. From then on c reports the configured
// weights of domains, not the effective ones.
func (c *CPUs) Raiser(dir string) *Raiser {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.raiser = &Raiser{cpus: c, weights: weightjournal.NewWeights(dir, "a domU", c.log)}
	return c.raiser
}

// Groups implements hypervisor.Raiser: a domain is a group of its own.
func (r *Raiser) Groups(of []hypervisor.Guests) (all []hypervisor.Group) {
	c := r.cpus
	c.mu.Lock()
	defer c.mu.Unlock()
	c.read(false)
	mine, named := make(map[uint16]bool), make(map[string]bool)
	for _, g := range of {
		if g.Xen == 0 {
			continue
		}
		group, err := r.find(g)
		if err != nil {
			r.weights.Complain(g.Domain, err)
			continue
		}
		mine[g.Xen], named[g.Domain] = true, true
		all = append(all, group)
	}
	r.weights.Keep(func(domain string) bool { return named[domain] })
	others := r.weighOthers(mine)
	for i := range all {
		all[i].Others = others[all[i].Parent]
	}
	return all
}

func (p *pool) name() string { return fmt.Sprintf("CPU pool %d", p.info.ID) }

// find returns the group of a machine, with its configured weight.
func (r *Raiser) find(of hypervisor.Guests) (g hypervisor.Group, err error) {
	w := domainWeight{r.cpus, of.Xen}
	g = hypervisor.Group{Domain: of.Domain, Least: 1, Most: control.MaxWeight}
	if g.Weight, g.Has, err = r.weights.See(of.Domain, weightjournal.Record{Xen: of.Xen}, w); err != nil {
		return g, err
	}
	g.Parent = r.cpus.domains[of.Xen].pool.name()
	return g, nil
}

// domainWeight is the weight of a domain.
type domainWeight struct {
	cpus *CPUs
	id   uint16
}

// Get implements weightjournal.Weight.
func (w domainWeight) Get() (int64, error) {
	d := w.cpus.domains[w.id]
	if d == nil {
		return 0, w.unknown()
	}
	if s := d.pool.info.Scheduler; !s.Known() {
		return 0, fmt.Errorf("domain %d: %s is of scheduler %v, which has no weights", w.id, d.pool.name(), s)
	}
	p, err := w.cpus.x.Params(d.pool.info.Scheduler, w.id)
	if errors.Is(err, syscall.ESRCH) {
		err = w.off()
	}
	return int64(p.Weight), err
}

func (w domainWeight) off() error {
	return fmt.Errorf("domain %d: Xen has none of that number: %w", w.id, weightjournal.ErrOff)
}

// unknown returns why a domain isn't among those read last.
func (w domainWeight) unknown() error {
	all, err := w.cpus.x.Domains()
	if err != nil {
		return err
	}
	if slices.ContainsFunc(all, func(d control.Domain) bool { return d.ID == w.id }) {
		return fmt.Errorf("domain %d: it has just begun, or changed pools", w.id)
	}
	return w.off()
}

// Put implements weightjournal.Weight.
func (w domainWeight) Put(weight int64) error {
	d := w.cpus.domains[w.id]
	if d == nil {
		return w.unknown()
	}
	if err := w.cpus.x.SetWeight(d.pool.info.Scheduler, w.id, uint16(weight)); err != nil {
		return err
	}
	d.has.Weight = uint16(weight)
	return nil
}

// Raise implements hypervisor.Raiser.
func (r *Raiser) Raise(domain string, weight int64) (changed bool, err error) {
	r.cpus.mu.Lock()
	defer r.cpus.mu.Unlock()
	if weight < 1 || weight > control.MaxWeight {
		err = fmt.Errorf("weight %d of domain %q: want 1 to %d", weight, domain, control.MaxWeight)
		r.weights.Complain(domain, err)
		return false, err
	}
	return r.weights.Raise(domain, weight)
}

// Restore implements hypervisor.Raiser.
func (r *Raiser) Restore() {
	r.cpus.mu.Lock()
	defer r.cpus.mu.Unlock()
	r.weights.Restore()
}

// plain returns a domain's configured weight where the effective one is has.
func (r *Raiser) plain(id, has uint16) uint16 {
	if r == nil {
		return has
	}
	return uint16(r.weights.Plain(weightjournal.Record{Xen: id}, int64(has)))
}

// yield makes a weight that was given to a domain the configured one, even if it equals one of ours.
func (r *Raiser) yield(id uint16, weight int64) {
	if r != nil {
		r.weights.Yield(weightjournal.Record{Xen: id}, weight)
	}
}

// weighOthers returns, by pool name, the sum of the weights of the other domains that use CPUs.
func (r *Raiser) weighOthers(mine map[uint16]bool) map[string]int64 {
	r.use.Next()
	sums := make(map[string]int64)
	for id, d := range r.cpus.domains {
		if !mine[id] && r.use.Busy(id, d.info.CPUTime, r.cpus.clock()) {
			sums[d.pool.name()] += int64(d.has.Weight)
		}
	}
	return sums
}
