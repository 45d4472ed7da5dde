package guests

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"pegasus/accel/placement"
	"pegasus/backend/gate"
	"pegasus/backend/pidfd"
	"pegasus/configs"
	"pegasus/hypervisor"
)

// placeTime bounds a guest's wait for room on an accelerator.
const placeTime = 5 * time.Second

// errNoRoom reports that no accelerator that may serve a domain has room for it.
var errNoRoom = errors.New("no accelerator has room")

// waiting is a guest process that waits to be admitted to a domain.
type waiting struct{ dom *domain }

// awaitSeat blocks until a guest's domain is placed and a seat in it is free, and takes the seat, with an arena of at
// most most bytes.
func (w waiting) awaitSeat(ctx context.Context, most uint64) (*guest, error) {
	dom := w.dom
	reg := dom.reg
	ctx, cancel := context.WithTimeout(ctx, placeTime)
	defer cancel()
	reg.count(&dom.settling, 1)
	defer w.cancelAdmission()
	w.awaitExitingGuests(ctx)
	for {
		g, freed, err := w.tryToAdmit(most)
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

// awaitExitingGuests blocks until the workers of ended guest processes are gone: the domain's workers, and other
// domains' workers with device memory. A program's seat and memory are then free for a program started after it. It
// waits little more than deathGrace: it does not wait for processes that end later.
func (w waiting) awaitExitingGuests(ctx context.Context) {
	over := time.After(2 * deathGrace) // a worker that stores its domain's shared segments may take longer
	for _, g := range w.exitingGuests() {
		select {
		case <-g.gone:
		case <-over:
			return
		case <-ctx.Done():
			return
		}
	}
}

// holdsMemory reports whether the guest has device memory. Registry.mu is held.
func (g *guest) holdsMemory() bool {
	st, ok := g.dom.attachment.Page.Statistics(g.slot)
	return ok && st.Memory > 0
}

func (w waiting) exitingGuests() (all []*guest) {
	dom := w.dom
	reg := dom.reg
	reg.mu.Lock()
	defer reg.mu.Unlock()
	for _, g := range reg.guests {
		if g.worker != nil && g.process != nil && (g.dom == dom || g.holdsMemory()) && pidfd.HasExited(g.process) {
			all = append(all, g)
		}
	}
	return all
}

// cancelAdmission removes a domain from the queue after the last of its guests found no place.
func (w waiting) cancelAdmission() {
	dom := w.dom
	reg := dom.reg
	reg.mu.Lock()
	defer reg.mu.Unlock()
	dom.settling--
	if dom.settling == 0 && dom.on == nil && reg.domains[dom.name] == dom {
		reg.queue.Release(dom.name)
		reg.makeRoom()
	}
	dom.endIfUnowned()
}

func (w waiting) tryToAdmit(most uint64) (g *guest, freed <-chan struct{}, err error) {
	dom := w.dom
	reg := dom.reg
	reg.mu.Lock()
	defer reg.mu.Unlock()
	if reg.ending {
		return nil, nil, errEnding
	}
	if dom.endpoint == nil {
		return nil, nil, dom.closed()
	}
	if err := dom.place(); err != nil {
		return nil, reg.freed, err
	}
	g, err = dom.seat(most)
	if err != nil {
		dom.leave()
		return nil, reg.freed, err
	}
	return g, nil, nil
}

// place puts a domain on an accelerator if it is on none. Registry.mu is held.
func (dom *domain) place() error {
	reg := dom.reg
	if dom.on != nil {
		return nil
	}
	a := reg.choose(dom.settings)
	if a == nil {
		return fmt.Errorf("domain %q: %w: %w", dom.name, errNoRoom, reg.refusals(dom.settings))
	}
	if err := dom.attach(a); err != nil {
		reg.queue.Release(dom.name)
		return err
	}
	dom.pauseIfMachine()
	dom.note("place", "placed on %s", a.Name)
	return nil
}

// attach opens an account, a gate page and a store for a domain on the accelerator, and adds it to the accelerator's
// policy. Registry.mu is held.
func (dom *domain) attach(a *accelerator) error {
	if err := dom.openAccount(a); err != nil {
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
	dom.reg.setQuotas(page, dom.settings)
	page.SetLogSpent(dom.logSpent)
	dom.on, dom.attachment = a, a.Attach(dom.settings, dom.cpu.Credits, page, store, dom.account)
	return nil
}

// refusals returns the reasons why no accelerator takes a domain. Registry.mu is held.
func (r *room) refusals(s configs.Domain) error {
	var all []error
	for _, a := range r.accelerators {
		if err := r.queue.Refusal(a.Name, request(s)); err != nil {
			all = append(all, err)
		}
	}
	return errors.Join(all...)
}

// leave removes a domain without guests from its accelerator. Registry.mu is held.
func (dom *domain) leave() {
	reg := dom.reg
	if dom.on == nil || len(dom.guests) != 0 {
		return
	}
	dom.on.Detach(dom.attachment)
	dom.logSpent = dom.attachment.Page.LogSpent()
	if lost := dom.attachment.Page.LogLost(); lost > 0 {
		dom.note("lost", "%d bytes of its workers' log are left out here", lost)
	}
	name, m := dom.name, dom.attachment
	reg.tasks.Go(func() { // blocks until ClearSegments has returned
		if err := m.Page.Free(); err != nil {
			reg.log.Warn("free gate page", "domain", name, "err", err)
		}
		m.Store.Close()
	})
	dom.on.Hardware.SetCommons(dom.name, 0)
	reg.store.changed = true // save closes its account
	dom.note("leave", "left %s", dom.on.Name)
	reg.queue.Release(dom.name)
	reg.workers.Leave(dom.name)
	dom.on, dom.attachment, dom.cpu = nil, nil, hypervisor.Weight{}
	dom.endIfUnowned()
	reg.makeRoom()
}

// makeRoom wakes the waiting guests after resources became free. Registry.mu is held.
func (r *room) makeRoom() {
	close(r.freed)
	r.freed = make(chan struct{})
}

// choose returns the accelerator that the queue assigns to the domain, or nil if the domain must wait. Registry.mu is
// held.
func (r *room) choose(s configs.Domain) *accelerator {
	r.measureUse()
	name, ok := r.queue.Place(request(s))
	if !ok {
		return nil
	}
	return r.accelerator(name)
}

// measureUse updates the queue's view of the accelerators' use. Registry.mu is held.
func (r *room) measureUse() {
	for _, a := range r.accelerators {
		r.queue.SetAllocated(a.Name, a.Hardware.MemoryReserved())
		r.queue.SetOverloaded(a.Name, a.Overloaded())
	}
}

// request returns the placement request for a domain.
func request(s configs.Domain) placement.Domain {
	return placement.Domain{Name: s.Name, Weight: s.Credits, Memory: uint64(max(s.Memory, s.Guarantee)), Only: s.Accelerator,
		Guarantee: uint64(s.Guarantee)}
}

func (r *room) accelerator(name string) *accelerator {
	for _, a := range r.accelerators {
		if a.Name == name {
			return a
		}
	}
	return nil
}

// newQueue returns a placement queue of the accelerators, under the given settings for them and for the domains, with
// each placed domain where it is. Registry.mu is held.
func (reg *Registry) newQueue(settings []configs.Accelerator, of func(*domain) configs.Domain) (*placement.Queue, error) {
	q := placement.NewQueue(placementOrder(settings))
	for i, a := range reg.accelerators {
		p := a.Hardware.Profile()
		_, err := q.Add(placement.Accelerator{
			Name: a.Name, MaxDomains: settings[i].MaxDomains, MaxCredits: settings[i].MaxCredits, Promised: p.Promisable,
			Profile: placement.Profile{Compute: p.Compute, Memory: p.Memory + p.Swap, In: p.Bandwidth, Out: p.Bandwidth},
		})
		if err != nil {
			return nil, fmt.Errorf("accelerator %q: %w", a.Name, err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(reg.domains)) {
		if dom := reg.domains[name]; dom.on != nil {
			if err := q.Restore(request(of(dom)), dom.on.Name); err != nil {
				return nil, err
			}
		}
	}
	return q, nil
}

// placementOrder returns the order for the policies: round robin if no accelerator has a scheduling policy, else by
// weight.
func placementOrder(settings []configs.Accelerator) placement.Order {
	for _, s := range settings {
		if s.Policy != "none" {
			return placement.ByWeight
		}
	}
	return placement.RoundRobin
}

// receive admits or rejects a guest process that connected.
func (w waiting) receive(ctx context.Context, n hypervisor.Connection) {
	dom := w.dom
	reg := dom.reg
	reg.count(&reg.arriving, 1)
	defer reg.count(&reg.arriving, -1)
	if p := n.Process(); p != nil {
		defer p.Close()
	}
	g, err := w.admit(ctx, n)
	if err == nil {
		dom.note("guest", "%s is served by worker %d", processName(g.pid), g.worker.PID)
		return
	}
	if reg.ctx.Err() != nil { // its connection closes without an answer, and it connects to the next daemon
		return
	}
	dom.note("refused", "%s: %v", processName(n.PID()), err)
	result := int32(resultSystemNotReady)
	if errors.Is(err, errNoRoom) || errors.Is(err, errTooMany) {
		result = resultDevicesUnavailable
	}
	if err := n.Refuse(result, err.Error()); err != nil {
		reg.log.Debug("refuse a guest", "domain", dom.name, "err", err)
	}
}

// admit takes a seat, starts a worker for it and sends the guest its welcome.
func (w waiting) admit(ctx context.Context, n hypervisor.Connection) (*guest, error) {
	arena := uint64(math.MaxUint64)
	if l, ok := n.(hypervisor.Lender); ok && l.MostBytes() != 0 {
		arena = l.MostBytes()
	}
	g, err := w.awaitSeat(ctx, arena)
	if err != nil {
		return nil, err
	}
	g.setProcess(n.PID())
	if err := g.startInTurn(ctx, n); err != nil {
		g.unseat()
		return nil, err
	}
	return g, nil
}
