package backend

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"pegasus/accel"
	"pegasus/backend/gate"
	"pegasus/configs"
	"pegasus/policies"
	"pegasus/vcpu"
)

// The heartbeat: gates count as open when no beat came for aliveFor, and beats
// come at least every beatEvery.
const (
	aliveFor  = time.Second
	beatEvery = 200 * time.Millisecond
)

// accelerator is one accelerator and its scheduler loop. The loop takes mu for
// a turn at a time; others take it to attach and detach domains and to look.
type accelerator struct {
	name string
	hw   Hardware
	bell *gate.Bell
	log  *slog.Logger

	// Guarded by the daemon's mu.
	load     meter              // of the time that its engines were held
	switched map[string]setting // laid over the configuration by `pegasus policy`

	mu        sync.Mutex
	settings  configs.Accelerator
	sched     *policies.Scheduler
	members   []*avcpu // by id
	nextID    vcpu.ID
	decisions uint64
}

// avcpu is a domain on its accelerator. All but its page is guarded by the
// accelerator's mu.
type avcpu struct {
	id     vcpu.ID
	domain string
	page   *gate.Page
	credit vcpu.Credits

	open    bool
	opened  int64 // when the gate was last opened
	looked  int64 // when the page was last looked at
	drained int64 // since when it has no work, as the scheduler was told; 0 after it was told of some
	busy    bool  // work was pending or in flight at the last look

	patience patience
}

func newAccelerator(c configs.Accelerator, hw Hardware, bell *gate.Bell, log *slog.Logger) (*accelerator, error) {
	p, err := newPolicy(c)
	if err != nil {
		return nil, err
	}
	return &accelerator{name: c.Name, hw: hw, bell: bell, log: log.With("accelerator", c.Name),
		switched: map[string]setting{}, settings: c, sched: policies.NewScheduler(p)}, nil
}

func newPolicy(c configs.Accelerator) (policies.Policy, error) {
	return policies.New(c.Policy, policyOptions(c))
}

func policyOptions(c configs.Accelerator) policies.Options {
	o := policies.Options{Tick: c.Tick, RotationCap: c.RotationCap, IdleYield: c.IdleYield}
	if c.Mode == "paper" {
		o.Mode = policies.Paper
		o.IdleYield = 0
	}
	return o
}

// run is the scheduler loop: look at the gates, decide, sleep until the next
// decision is due, a worker rings, or a beat is.
func (a *accelerator) run(ctx context.Context) {
	stop := context.AfterFunc(ctx, a.bell.Ring)
	defer stop()
	for ctx.Err() == nil {
		rung := a.bell.Rung()
		a.bell.Listen(rung, a.turn())
	}
}

// turn does what is due now and returns how long nothing will be.
func (a *accelerator) turn() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := gate.Now()
	for _, m := range a.members {
		m.page.Tick(now + int64(aliveFor))
		a.look(now, m)
	}
	for _, act := range a.sched.Ready(vcpu.Time(now)) {
		a.apply(now, act)
	}
	next := a.sched.Next()
	if next == vcpu.Forever {
		return beatEvery
	}
	return min(max(next.Sub(vcpu.Time(gate.Now())), 0), beatEvery)
}

// look tells the scheduler what happened to a domain since the last look.
func (a *accelerator) look(now int64, m *avcpu) {
	w := m.page.Look()
	used := vcpu.Usage{
		Compute: time.Duration(w.Used[accel.Compute]),
		Copy:    time.Duration(w.Used[accel.CopyIn] + w.Used[accel.CopyOut] + w.Used[accel.CopyDevice]),
	}
	if m.open {
		open := time.Duration(max(now-max(m.looked, m.opened), 0))
		used.Idle = m.patience.spend(min(time.Duration(w.Idle), open), open)
		used.Stalled = max(open-used.Busy()-used.Idle, 0)
	}
	m.looked = now
	m.busy = w.Busy()
	if used != (vcpu.Usage{}) {
		a.step(now, policies.Event{Kind: policies.Charge, Domain: policies.Domain{ID: m.id}, Used: used})
	}
	switch {
	case w.Busy():
		a.wake(now, 0, m, policies.Arrived)
		m.drained = 0
	case m.drained == 0 || w.IdleSince > m.drained:
		m.drained = max(w.IdleSince, 1)
		a.wake(now, w.IdleSince, m, policies.Drained)
	}
	if m.open && w.Busy() {
		m.page.Watch()
	}
}

// patience is how much idleness in its windows a domain is not charged for: a
// program that keeps little queued runs dry now and then, because a busy host
// wakes it late, and is backlogged all the same.
type patience time.Duration

const (
	patienceGrowth = 3 // one part in so many of the time that the gate is open
	maxPatience    = patience(100 * time.Millisecond)
)

// spend returns what of idle, during open, is to be charged.
func (p *patience) spend(idle, open time.Duration) time.Duration {
	*p = min(*p+patience(open/patienceGrowth), maxPatience)
	free := min(idle, time.Duration(*p))
	*p -= patience(free)
	return idle - free
}

func (a *accelerator) step(now int64, e policies.Event) { a.sched.Step(vcpu.Time(now), e) }

// wake tells what happened to a domain, and since when if that is known.
func (a *accelerator) wake(now, since int64, m *avcpu, s policies.Signal) {
	a.step(now, policies.Event{Kind: policies.Wake, Domain: policies.Domain{ID: m.id}, Signal: s, Since: vcpu.Time(since)})
}

// apply writes a decision to a gate page.
func (a *accelerator) apply(now int64, act policies.Action) {
	a.decisions++
	i, ok := a.find(act.Domain)
	if !ok {
		return
	}
	m := a.members[i]
	if !act.Open {
		m.open = false
		m.page.Revoke()
		return
	}
	if !m.open {
		m.open, m.opened = true, now
	}
	m.page.Grant(terms(act.Lease))
	m.page.Watch()
}

func terms(l policies.Lease) gate.Terms {
	t := gate.Terms{Classes: gate.AllClasses, Until: int64(l.Until)}
	switch l.Class {
	case policies.Compute:
		t.Classes = gate.ComputeOnly
	case policies.Copy:
		t.Classes = gate.CopyOnly
	}
	switch l.Kind {
	case policies.Budget:
		t.Budget = l.Amount
	case policies.Requests:
		t.Requests = l.Amount
	}
	return t
}

func (a *accelerator) find(id vcpu.ID) (int, bool) {
	return slices.BinarySearchFunc(a.members, id, func(m *avcpu, id vcpu.ID) int { return cmp.Compare(m.id, id) })
}

// attach adds a domain with its page, whose gate is closed or left over from a
// daemon before.
func (a *accelerator) attach(domain string, credits int, page *gate.Page) *avcpu {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.nextID++
	m := &avcpu{id: a.nextID, domain: domain, page: page, credit: vcpu.Credits(credits)}
	now := gate.Now()
	m.looked = now
	page.SetInFlightLimit(int64(a.settings.InFlight))
	page.Tick(now + int64(aliveFor))
	page.Revoke()
	a.members = append(a.members, m)
	a.step(now, policies.Event{Kind: policies.Attach, Domain: policies.Domain{ID: m.id, Credits: m.credit}})
	a.wake(now, 0, m, policies.ContextOpened)
	a.bell.Ring()
	return m
}

// detach takes a domain off. Nobody uses its page any more.
func (a *accelerator) detach(m *avcpu) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := gate.Now()
	a.look(now, m)
	a.wake(now, 0, m, policies.ContextClosed)
	a.step(now, policies.Event{Kind: policies.Detach, Domain: policies.Domain{ID: m.id}})
	if i, ok := a.find(m.id); ok {
		a.members = slices.Delete(a.members, i, i+1)
	}
	a.bell.Ring()
}

// setCredits changes what a domain is owed.
func (a *accelerator) setCredits(m *avcpu, credits int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if m.credit == vcpu.Credits(credits) {
		return
	}
	m.credit = vcpu.Credits(credits)
	a.step(gate.Now(), policies.Event{Kind: policies.Attach, Domain: policies.Domain{ID: m.id, Credits: m.credit}})
	a.bell.Ring()
}

// reap frees what a dead worker held here.
func (a *accelerator) reap(m *avcpu, slot int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	m.page.Reap(slot)
	a.bell.Ring()
}

// configure takes up new settings, with their policy p if they ask for another.
// Nothing is lost: who is attached, what they used and what they wait for stays.
func (a *accelerator) configure(c configs.Accelerator, p policies.Policy) {
	a.mu.Lock()
	defer a.mu.Unlock()
	old := a.settings
	a.settings = c
	for _, m := range a.members {
		m.page.SetInFlightLimit(int64(c.InFlight))
	}
	if c.Policy != old.Policy || policyOptions(c) != policyOptions(old) {
		now := gate.Now()
		for _, m := range a.members {
			a.look(now, m)
		}
		a.sched.Use(vcpu.Time(now), p)
	}
	a.bell.Ring()
}

func (a *accelerator) current() configs.Accelerator {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.settings
}
