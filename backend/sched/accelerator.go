// Package sched is the scheduler loop of one accelerator: it samples the gate pages, translates their changes to events
// of the policy, charges domains for their engine time, and writes the policy's decisions to the pages.
//
// Callers: backend attaches and detaches domains, and reads state; backend/cpus passes samples of vCPU state.
//
// Trust boundary: workers write gate pages, which a hostile worker may fill with anything. A figure from a page is
// limited to possible values, and a domain with forged pages is expelled.
//
// Locks: Accelerator.mu is the only one. It is not held across a wait, nor while waiting for a value that workers
// write.
package sched

import (
	"cmp"
	"context"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"pegasus/backend/control"
	"pegasus/backend/gate"
	"pegasus/backend/hardware"
	"pegasus/configs"
	"pegasus/policies"
	"pegasus/vcpu"
)

// Heartbeat periods. Workers treat a gate as open when the daemon has sent no heartbeat for aliveFor; the loop sends
// one at least every beatEvery.
const (
	aliveFor  = time.Second
	beatEvery = 200 * time.Millisecond
)

// mendEvery is how often the daemon checks workers' shared pages for damage.
const mendEvery = 50 * time.Millisecond

// Clock returns the time in nanoseconds. It is gate.Now, the clock of the gate pages, except in tests of code that
// compares no time with a page.
type Clock func() int64

// Options configures an Accelerator.
type Options struct {
	Settings configs.Accelerator
	Hardware hardware.Accelerator
	Bell     *gate.Bell   // rung by workers when a gate page changes
	Now      Clock        // nil: gate.Now
	Log      *slog.Logger // nil: none

	// The loop calls the functions below from its own goroutine; nil: not called.

	// Expel ends all workers of a domain. It is called with the accelerator's lock held and must not block.
	Expel func(*Attachment)
	// Sample samples vCPU state and passes it to the policies, and reports whether it did; nil: there is no sampler.
	Sample func(period time.Duration) bool
	// Follow receives the end of the window that a domain has; 0: its window has ended. It is called with the
	// accelerator's lock held, only while the settings enable it.
	Follow func(domain string, until vcpu.Time)
}

// Accelerator is one accelerator with its scheduler loop. It owns the policy, the attached domains and the decisions on
// their gate pages. Run holds mu for one turn at a time; other goroutines hold it to attach and detach domains and to
// read state.
type Accelerator struct {
	Name     string
	Hardware hardware.Accelerator
	Bell     *gate.Bell

	expel   func(*Attachment)
	sample  func(period time.Duration) bool
	follow  func(domain string, until vcpu.Time)
	now     Clock
	log     *slog.Logger
	silence time.Duration // heartbeat age at which gates count as open: aliveFor, except in tests

	turned atomic.Uint64 // turns of the loop

	mu        sync.Mutex
	settings  configs.Accelerator
	presample preDecisionSampling
	accountIDs
	members   members
	decisions uint64
	costs     costs                 // of the decisions of the policy in force
	recorder  func(policies.Record) // receives the scheduler's events and decisions; nil: no recording
	windows   func(control.Span)    // receives the spans in which gates were open; nil: none receives them
}

// members are the attached domains, by ID.
type members []*Attachment

// Attachment is a domain on its accelerator. The exported fields are constant; the accelerator's mu guards the others.
type Attachment struct {
	ID     vcpu.ID
	Domain string
	Page   *gate.Page
	Store  *os.File // holds the domain's device segments

	account hardware.Account // engine time that the domain has held
	shares  vcpu.Domain      // its credits and guarantees

	openGate
	pageSample
	window vcpu.Time // end of the window that Options.Follow last received

	paused    bool // its gate stays closed
	withdrawn bool // and the scheduler was notified that it needs no turn

	heads  [gate.NumClasses]gate.Head // as last reported to the scheduler
	again  bool                       // its gate closed: requests still waiting there are reported again
	worked [gate.NumClasses]bool
	rested [gate.NumClasses]int64 // when a class last ran out of work; 0: it never had any
	turns  turns
}

// openGate is the part of a domain's gate that its leases open.
type openGate struct {
	leases gate.Classes                    // classes for which the gate is open
	terms  [1 + gate.NumClasses]gate.Terms // of the leases, by policies.Class
	opened int64                           // when the gate last opened
	since  [1 + gate.NumClasses]int64      // by policies.Class: start of the unreported part of the open window; 0: none
}

// pageSample is a domain's work, as the last sample of its gate page found it.
type pageSample struct {
	sampledAt int64
	work      gate.Work
	stuck     [1 + gate.NumClasses]bool // by policies.Class: work waited, and none could progress
	busy      bool                      // work was pending or in flight
	drained   int64                     // start of the idle period reported to the scheduler; 0 after work was reported
	forged    bool                      // a worker wrote a field of the daemon, and the domain is being expelled
}

// New returns an accelerator without domains. Run starts its loop.
func New(o Options) (*Accelerator, error) {
	p, err := NewPolicies(o.Settings)
	if err != nil {
		return nil, err
	}
	a := &Accelerator{Name: o.Settings.Name, Hardware: o.Hardware, Bell: o.Bell, expel: o.Expel, sample: o.Sample, follow: o.Follow,
		now: o.Now, log: o.Log, silence: aliveFor, settings: o.Settings, accountIDs: accountIDs{feed: feed{policies.NewScheduler(p...)}, ids: map[string]vcpu.ID{}}}
	if a.now == nil {
		a.now = gate.Now
	}
	if a.log == nil {
		a.log = slog.New(slog.DiscardHandler)
	}
	return a, nil
}

// SetPassing sets the function that reports whether a domain exists only while its processes do. The accelerator calls
// it during Attach, with its lock held, so that the function may rely on a lock that the caller of Attach holds.
func (a *Accelerator) SetPassing(passing func(name string) bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.passing = passing
}

// Run is the scheduler loop. Each iteration samples the gates, decides, and sleeps until the next decision or heartbeat
// is due or a worker rings the doorbell. It returns when ctx ends.
func (a *Accelerator) Run(ctx context.Context) {
	rang := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { defer close(rang); a.Bell.Ring() })
	defer func() {
		if !stop() {
			<-rang // the bell is unmapped later
		}
	}()
	u := newUrgency(a.log)
	for ctx.Err() == nil {
		rung := a.Bell.Rung()
		a.samplePending()
		wait := a.turn()
		a.turned.Add(1)
		u.ran(gate.Now(), threadTime())
		a.Bell.Listen(rung, wait)
	}
}

// Turns returns the number of turns that the loop has made. It makes one at least every 200 ms.
func (a *Accelerator) Turns() uint64 { return a.turned.Load() }

// Mend repairs shared pages that hostile workers have damaged, until ctx ends. Only a domain's own workers can
// overwrite its queues, so mend expels the domain.
func (a *Accelerator) Mend(ctx context.Context) {
	tick := time.NewTicker(mendEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if damaged := a.Hardware.Mend(); len(damaged) > 0 {
			a.mu.Lock()
			for _, m := range a.members {
				if slices.Contains(damaged, m.Domain) {
					a.expelForger(m)
				}
			}
			a.mu.Unlock()
		}
	}
}

// turn performs all work that is due now and returns the time until the next work is due.
func (a *Accelerator) turn() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	for _, m := range a.members {
		a.guard(m)
		m.Page.Tick(now + int64(a.silence))
		m.work = a.chargeUse(now, m)
	}
	for _, m := range a.members {
		a.report(now, m, m.work)
	}
	start := a.now()
	decided := a.sched.Ready(vcpu.Time(now))
	if n := len(decided); n > 0 {
		a.costs.add((a.now()-start)/int64(n), uint64(n))
	}
	var closed [1 + gate.NumClasses]bool // by policies.Class
	for _, act := range decided {
		a.apply(now, act)
		closed[act.Lease.Class] = !act.Open
	}
	for _, m := range a.members {
		m.renew()
	}
	// No domain received the revoked lease: the requests that wait there are reported at the next sample, which no
	// doorbell announces.
	if slices.Contains(closed[:], true) {
		return 0
	}
	next := a.sched.Next()
	if next == vcpu.Forever {
		return beatEvery
	}
	if a.coordinates() {
		next = a.presample.next(next)
	}
	return min(max(next.Sub(vcpu.Time(a.now())), 0), beatEvery)
}

// guard repairs a gate page if a worker has changed a field that only the daemon writes, and expels the domain, since
// its workers may have computed out of turn. a.mu is held.
func (a *Accelerator) guard(m *Attachment) {
	if m.Page.Intact() {
		return
	}
	m.Page.Mend()
	a.expelForger(m)
}

// expelForger expels a domain after one of its workers wrote values that no honest worker writes. a.mu is held.
func (a *Accelerator) expelForger(m *Attachment) {
	if !m.forged && a.expel != nil {
		m.forged = true
		a.expel(m)
	}
}

// Expelled records that a domain's workers have been ended, so that a later worker of the domain can be expelled again.
func (a *Accelerator) Expelled(m *Attachment) {
	a.mu.Lock()
	defer a.mu.Unlock()
	m.forged = false
}

// apply writes a decision to a gate page.
func (a *Accelerator) apply(now int64, act policies.Action) {
	a.decisions++
	i, ok := a.members.find(act.Domain)
	if !ok {
		return
	}
	m := a.members[i]
	if a.follow != nil && a.settings.CPUFollows && act.Lease.Class != policies.Copy {
		a.reportWindow(now, m, act)
	}
	m.stuck = [1 + gate.NumClasses]bool{}
	if a.windows != nil {
		a.window(now, m, act.Lease.Class)
		if m.since[act.Lease.Class] = 0; act.Open {
			m.since[act.Lease.Class] = now
		}
	}
	if !act.Open {
		m.terms[act.Lease.Class] = gate.Terms{}
		m.leases &^= classes(act.Lease.Class)
		m.Page.Revoke(classes(act.Lease.Class))
		m.setTurn(a.settings.KernelTimeout)
		m.again = true
		return
	}
	if m.leases == 0 {
		m.opened = now
	}
	m.leases |= classes(act.Lease.Class)
	m.terms[act.Lease.Class] = terms(act.Lease)
	if m.paused {
		return
	}
	m.setTurn(a.settings.KernelTimeout)
	m.Page.Grant(m.terms[act.Lease.Class])
	m.Page.Watch()
}

// renew grants a budget again if a request waits under it while nothing is in flight, or while all in-flight work
// awaits its turn: all use has been reported, and the policy leaves the lease unchanged. Budget reserved for requests
// that never executed, because the worker died or the lease of another class preceded, is not returned otherwise.
func (m *Attachment) renew() {
	for c, stuck := range m.stuck {
		if t := m.terms[c]; stuck && t.Budget > 0 && !m.paused {
			m.Page.Grant(t)
		}
	}
	m.stuck = [1 + gate.NumClasses]bool{}
}

func terms(l policies.Lease) gate.Terms {
	t := gate.Terms{Classes: classes(l.Class), Until: int64(l.Until)}
	switch l.Kind {
	case policies.Budget:
		t.Budget = l.Amount
	case policies.Requests:
		t.Requests = l.Amount
	}
	return t
}

// classes maps a policy's class to the gate's.
func classes(c policies.Class) gate.Classes {
	switch c {
	case policies.Compute:
		return gate.ComputeOnly
	case policies.Copy:
		return gate.CopyOnly
	}
	return gate.AllClasses
}

// find returns the index of the domain with an ID.
func (l members) find(id vcpu.ID) (int, bool) {
	return slices.BinarySearchFunc(l, id, func(m *Attachment, id vcpu.ID) int { return cmp.Compare(m.ID, id) })
}

// Attach adds a domain with its store, its account and its page. The page's gate is closed, or left over from the
// previous daemon.
func (a *Accelerator) Attach(c configs.Domain, cpu vcpu.Credits, page *gate.Page, store *os.File, account hardware.Account) *Attachment {
	a.mu.Lock()
	defer a.mu.Unlock()
	id := a.idOf(c.Name)
	now := a.now()
	m := &Attachment{ID: id, Domain: c.Name, Page: page, Store: store, account: account, shares: sharesOf(id, c, cpu)}
	m.sampledAt = now
	m.setTurn(a.settings.KernelTimeout) // it has no turn yet
	page.SetInFlightLimit(int64(a.settings.InFlight))
	if a.Hardware != nil { // tests of the loop have no hardware
		page.SetStops(a.Hardware.Profile().Stops)
	}
	page.Tick(now + int64(a.silence))
	page.Revoke(gate.AllClasses)
	at, _ := a.members.find(id)
	a.members = slices.Insert(a.members, at, m)
	a.step(now, policies.Event{Kind: policies.Attach, Domain: m.shares})
	a.wake(now, 0, m, policies.ContextOpened)
	a.Bell.Ring()
	return m
}

// Detach removes a domain. Its page must no longer be in use.
func (a *Accelerator) Detach(m *Attachment) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	a.sampleGate(now, m)
	a.wake(now, 0, m, policies.ContextClosed)
	a.step(now, policies.Event{Kind: policies.Detach, Domain: policies.Domain{ID: m.ID}})
	if i, ok := a.members.find(m.ID); ok {
		a.members = slices.Delete(a.members, i, i+1)
	}
	a.Bell.Ring()
}

// SetShares changes a domain's credits and guarantees.
func (a *Accelerator) SetShares(m *Attachment, c configs.Domain, cpu vcpu.Credits) {
	a.mu.Lock()
	defer a.mu.Unlock()
	next := sharesOf(m.ID, c, cpu)
	if m.shares == next {
		return
	}
	m.shares = next
	a.step(a.now(), policies.Event{Kind: policies.Attach, Domain: m.shares})
	a.Bell.Ring()
}

// Reap frees everything that a dead worker held on the page, except device segments, which backend/guests clears.
func (a *Accelerator) Reap(m *Attachment, slot int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	m.Page.Reap(slot)
	a.Bell.Ring()
}

// Configure applies new settings and, if they choose another policy, the policies p. The attached domains, their use
// and their waiting requests are kept.
func (a *Accelerator) Configure(c configs.Accelerator, p []policies.Policy) {
	a.mu.Lock()
	defer a.mu.Unlock()
	old := a.settings
	a.settings = c
	for _, m := range a.members {
		m.Page.SetInFlightLimit(int64(c.InFlight))
	}
	if Choice(c) != Choice(old) {
		now := a.now()
		for _, m := range a.members {
			a.sampleGate(now, m)
			if c.Accounts != old.Accounts { // work is reported in another form from now on
				a.wake(now, 0, m, policies.Drained)
				m.drained, m.worked = 0, [gate.NumClasses]bool{}
			}
		}
		if a.recorder != nil {
			next := Choice(c)
			a.recorder(policies.Record{At: vcpu.Time(now), Choice: &next})
		}
		a.sched.Use(vcpu.Time(now), p...)
		a.costs = costs{}
	}
	a.Bell.Ring()
}

func (a *Accelerator) Settings() configs.Accelerator {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.settings
}

// setTurn sets the engines for which it is the domain's turn, and for how long a kernel may compute. The accelerator's mu
// is held.
func (m *Attachment) setTurn(kernel time.Duration) {
	open := m.leases
	if m.paused {
		open = 0
	}
	m.account.Turn(open.Has(gate.Compute), open.Has(gate.Copy), kernel)
}
