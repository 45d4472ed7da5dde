package backend

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"pegasus/accel/placement"
	"pegasus/backend/gate"
	"pegasus/configs"
	"pegasus/hypervisor"
)

// placeTime is how long a guest waits for room on an accelerator.
const placeTime = 5 * time.Second

// errNoRoom is when no accelerator that may take a domain has room for it.
var errNoRoom = errors.New("no accelerator has room")

// settle waits until a guest's domain is placed and a seat in it is free, and takes the seat, with
// an arena of most bytes at most.
func (d *Daemon) settle(ctx context.Context, dom *domain, most uint64) (*guest, error) {
	ctx, cancel := context.WithTimeout(ctx, placeTime)
	defer cancel()
	d.count(&dom.settling, 1)
	defer d.giveUp(dom)
	d.awaitLeavers(ctx, dom)
	for {
		g, freed, err := d.tryToSettle(dom, most)
		if err == nil || !errors.Is(err, errNoRoom) {
			return g, err
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return nil, err
		}
	}
}

// awaitLeavers waits for workers whose processes have ended already: of the domain, and
// those with device memory of others. So seat and memory of a program are there for one
// that is started after it. It takes little more than deathGrace, since who comes to that later is
// not waited for.
func (d *Daemon) awaitLeavers(ctx context.Context, dom *domain) {
	over := time.After(2 * deathGrace) // who stores what its domain shares may take longer
	for _, g := range d.leavers(dom) {
		select {
		case <-g.gone:
		case <-over:
			return
		case <-ctx.Done():
			return
		}
	}
}

// holdsMemory says whether it has device memory. d.mu is held.
func (g *guest) holdsMemory() bool {
	st, ok := g.dom.avcpu.page.Statistics(g.slot)
	return ok && st.Memory > 0
}

func (d *Daemon) leavers(dom *domain) (all []*guest) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, g := range d.guests {
		if g.worker != nil && g.process != nil && (g.dom == dom || g.holdsMemory()) && hasExited(g.process) {
			all = append(all, g)
		}
	}
	return all
}

// giveUp leaves the queue with the last guest of a domain that found no place.
func (d *Daemon) giveUp(dom *domain) {
	d.mu.Lock()
	defer d.mu.Unlock()
	dom.settling--
	if dom.settling == 0 && dom.on == nil && d.domains[dom.name] == dom {
		d.queue.Release(dom.name)
		d.makeRoom()
	}
	d.retire(dom)
}

func (d *Daemon) tryToSettle(dom *domain, most uint64) (g *guest, freed <-chan struct{}, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ending {
		return nil, nil, errEnding
	}
	if dom.door == nil {
		return nil, nil, dom.closed()
	}
	if err := d.place(dom); err != nil {
		return nil, d.freed, err
	}
	g, err = d.seat(dom, most)
	if err != nil {
		d.leave(dom)
		return nil, d.freed, err
	}
	return g, nil, nil
}

// place puts a domain on an accelerator if it is on none. d.mu is held.
func (d *Daemon) place(dom *domain) error {
	if dom.on != nil {
		return nil
	}
	a := d.choose(dom)
	if a == nil {
		return fmt.Errorf("domain %q: %w: %w", dom.name, errNoRoom, d.refusals(dom))
	}
	if err := d.attach(dom, a); err != nil {
		d.queue.Release(dom.name)
		return err
	}
	d.pauseIfMachine(dom)
	d.noteOf(dom, "place", "placed on %s", a.name)
	return nil
}

// attach gives a domain an account, a gate page and a store on the accelerator, and its policy a new member. d.mu is held.
func (d *Daemon) attach(dom *domain, a *accelerator) error {
	if err := d.openAccount(dom, a); err != nil {
		return err
	}
	page, err := gate.New()
	if err != nil {
		return err
	}
	store, err := newStore()
	if err != nil {
		page.Free()
		return err
	}
	setQuotas(page, dom.settings)
	page.SetLogSpent(dom.logSpent)
	dom.on, dom.avcpu = a, a.attach(dom.settings, dom.cpu.Credits, page, store, dom.account)
	return nil
}

// refusals says why no accelerator takes a domain. d.mu is held.
func (d *Daemon) refusals(dom *domain) error {
	var all []error
	for _, a := range d.accelerators {
		if err := d.queue.Refusal(a.name, request(dom.settings)); err != nil {
			all = append(all, err)
		}
	}
	return errors.Join(all...)
}

// leave takes a domain without guests off its accelerator. d.mu is held.
func (d *Daemon) leave(dom *domain) {
	if dom.on == nil || len(dom.guests) != 0 {
		return
	}
	dom.on.detach(dom.avcpu)
	dom.logSpent = dom.avcpu.page.LogSpent()
	if lost := dom.avcpu.page.LogLost(); lost > 0 {
		d.noteOf(dom, "lost", "%d bytes of its workers' log are left out here", lost)
	}
	name, m := dom.name, dom.avcpu
	d.tasks.Go(func() { // waits until segments are cleared
		if err := m.page.Free(); err != nil {
			d.log.Warn("free gate page", "domain", name, "err", err)
		}
		m.store.Close()
	})
	dom.on.hw.SetCommons(dom.name, 0)
	d.changed = true // save closes its account
	d.noteOf(dom, "leave", "left %s", dom.on.name)
	d.queue.Release(dom.name)
	for _, g := range d.cgroups {
		g.leave(dom.name)
	}
	dom.on, dom.avcpu, dom.cpu = nil, nil, hypervisor.Weight{}
	d.retire(dom)
	d.makeRoom()
}

// makeRoom tells those who wait that something came free. d.mu is held.
func (d *Daemon) makeRoom() {
	close(d.freed)
	d.freed = make(chan struct{})
}

// choose asks the queue for the domain's accelerator; nil if it must wait. d.mu is held.
func (d *Daemon) choose(dom *domain) *accelerator {
	d.gauge()
	name, ok := d.queue.Place(request(dom.settings))
	if !ok {
		return nil
	}
	return d.accelerator(name)
}

// gauge tells the queue how accelerators are used. d.mu is held.
func (d *Daemon) gauge() {
	for _, a := range d.accelerators {
		d.queue.SetAllocated(a.name, a.hw.MemoryReserved())
		d.queue.SetOverloaded(a.name, a.overloaded())
	}
}

// overloaded says that the policy doesn't keep its promises.
func (a *accelerator) overloaded() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.sched.Overloaded()
}

// request is a domain as the queue knows it.
func request(s configs.Domain) placement.Domain {
	return placement.Domain{Name: s.Name, Weight: s.Credits, Memory: uint64(max(s.Memory, s.Guarantee)), Only: s.Accelerator,
		Guarantee: uint64(s.Guarantee)}
}

func (d *Daemon) accelerator(name string) *accelerator {
	for _, a := range d.accelerators {
		if a.name == name {
			return a
		}
	}
	return nil
}

// lineUp makes the queue of the accelerators, under settings for each and for
// the domains, with everybody where they are. d.mu is held.
func (d *Daemon) lineUp(settings []configs.Accelerator, of func(*domain) configs.Domain) (*placement.Queue, error) {
	q := placement.NewQueue(placementOrder(settings))
	for i, a := range d.accelerators {
		p := a.hw.Profile()
		_, err := q.Add(placement.Accelerator{
			Name: a.name, MaxDomains: settings[i].MaxDomains, Promised: p.Promisable,
			Profile: placement.Profile{Compute: p.Compute, Memory: p.Memory + p.Swap, In: p.Bandwidth, Out: p.Bandwidth},
		})
		if err != nil {
			return nil, fmt.Errorf("accelerator %q: %w", a.name, err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.domains)) {
		if dom := d.domains[name]; dom.on != nil {
			if err := q.Restore(request(of(dom)), dom.on.name); err != nil {
				return nil, err
			}
		}
	}
	return q, nil
}

// placementOrder goes with the policies: where none schedules, domains are
// spread in turn.
func placementOrder(settings []configs.Accelerator) placement.Order {
	for _, s := range settings {
		if s.Policy != "none" {
			return placement.ByWeight
		}
	}
	return placement.RoundRobin
}
