package backend

import (
	"cmp"
	"context"
	"log/slog"
	"math"
	"os"
	"slices"
	"sync"
	"time"

	"pegasus/backend/control"
	"pegasus/backend/gate"
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

// accelerator is one accelerator with its scheduler loop. The loop holds mu for one turn at a time; other goroutines
// hold it to attach and detach domains and to read state.
type accelerator struct {
	name string
	hw   Hardware
	bell *gate.Bell
	log  *slog.Logger

	// expel ends all workers of a domain. The caller holds mu; expel does not wait for the workers. If nil, no worker
	// is ended.
	expel func(*avcpu)

	silence time.Duration // heartbeat age at which gates count as open: aliveFor, except in tests

	// Guarded by the daemon's mu.
	load     meter              // share of time in which its engines were held
	switched map[string]setting // settings that `pegasus policy` laid over the configuration

	mu        sync.Mutex
	settings  configs.Accelerator
	follower  *follower                // mirrors its windows to the CPUs; nil unless the settings enable it
	see       func(time.Duration) bool // samples vCPU state and passes it to policies; nil: no sampler
	glances   glances                  // pre-decision sampling
	sched     *policies.Scheduler
	members   []*avcpu // by id
	nextID    vcpu.ID
	ids       map[string]vcpu.ID     // by name: attached domains, and detached ones with a kept account
	passing   func(name string) bool // reports whether a domain exists only while its processes do; needs the daemon's mu
	decisions uint64
	costs     costs                 // of the decisions of the policy in force
	tape      func(policies.Record) // receives the scheduler's events and decisions; nil: no recording
	windows   func(control.Span)    // receives the spans in which gates were open; nil: none receives them
}

// avcpu is a domain's attachment to an accelerator. The accelerator's mu guards every field except page.
type avcpu struct {
	id      vcpu.ID
	domain  string
	page    *gate.Page
	store   *os.File // holds the domain's device segments
	hw      Hardware
	account Account     // engine time that the domain has held
	shares  vcpu.Domain // its credits and guarantees

	leases  gate.Classes                    // classes for which its gate is open
	terms   [1 + gate.NumClasses]gate.Terms // of its leases, by policies.Class
	stuck   [1 + gate.NumClasses]bool       // by policies.Class: at the last sample work waited, and none could progress
	window  vcpu.Time                       // end of the window that the CPU follower was last given
	opened  int64                           // when the gate last opened
	since   [1 + gate.NumClasses]int64      // by policies.Class: start of the unreported part of the open window; 0: none
	looked  int64                           // when the page was last sampled
	work    gate.Work                       // at the last sample
	drained int64                           // start of the idle period reported to the scheduler; 0 after work was reported
	busy    bool                            // work was pending or in flight at the last sample
	forged  bool                            // a worker wrote a field of the daemon, and the domain is being expelled

	paused    bool // its gate stays closed
	withdrawn bool // and the scheduler was notified that it needs no turn

	heads  [gate.NumClasses]gate.Head // as last reported to the scheduler
	again  bool                       // its gate closed: requests still waiting there are reported again
	worked [gate.NumClasses]bool
	rested [gate.NumClasses]int64 // when a class last ran out of work; 0: it never had any
	turns  turns
}

func newAccelerator(c configs.Accelerator, hw Hardware, bell *gate.Bell, log *slog.Logger) (*accelerator, error) {
	p, err := newPolicies(c)
	if err != nil {
		return nil, err
	}
	return &accelerator{name: c.Name, hw: hw, bell: bell, log: log.With("accelerator", c.Name), silence: aliveFor,
		switched: map[string]setting{}, settings: c, ids: map[string]vcpu.ID{}, sched: policies.NewScheduler(p...)}, nil
}

// newPolicies returns an accelerator's policy, or one policy per engine class if the classes are accounted separately.
func newPolicies(c configs.Accelerator) ([]policies.Policy, error) {
	return choice(c).New()
}

func choice(c configs.Accelerator) policies.Choice {
	return policies.Choice{Policy: c.Policy, Options: policyOptions(c)}
}

func policyOptions(c configs.Accelerator) policies.Options {
	o := policies.Options{
		Tick: c.Tick, RotationCap: c.RotationCap, IdleYield: c.IdleYield,
		DebtAF: c.DebtAF, ByCredits: c.ByCredits, Scan: c.Scan, MaxSkip: c.MaxSkip, Boost: c.Boost,
		Wait: c.Wait, Ahead: c.Ahead, SwitchCost: c.SwitchCost, RequestOptions: requestOptions(c),
	}
	if c.Change > 0 && c.SwitchCost == configs.SwitchCost {
		o.SwitchCost = c.Change
	}
	if c.Boost == 0 {
		o.Boost = -1 // for a policy 0 is the default
	}
	if c.Mode == "paper" {
		o.Mode = policies.Paper
		o.IdleYield = 0
	}
	return o
}

// run is the scheduler loop. Each iteration samples the gates, decides, and sleeps until the next decision or heartbeat
// is due or a worker rings the doorbell. It returns when ctx ends.
func (a *accelerator) run(ctx context.Context) {
	rang := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { defer close(rang); a.bell.Ring() })
	defer func() {
		if !stop() {
			<-rang // the bell is unmapped later
		}
	}()
	for ctx.Err() == nil {
		rung := a.bell.Rung()
		a.glance()
		a.bell.Listen(rung, a.turn())
	}
}

// mend repairs shared pages that hostile workers have damaged, until ctx ends. Only a domain's own workers can
// overwrite its queues, so mend expels the domain.
func (a *accelerator) mend(ctx context.Context) {
	for pause(ctx, mendEvery) {
		if damaged := a.hw.Mend(); len(damaged) > 0 {
			a.mu.Lock()
			for _, m := range a.members {
				if slices.Contains(damaged, m.domain) {
					a.forged(m)
				}
			}
			a.mu.Unlock()
		}
	}
}

// turn performs all work that is due now and returns the time until the next work is due.
func (a *accelerator) turn() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := gate.Now()
	for _, m := range a.members {
		a.guard(m)
		m.page.Tick(now + int64(a.silence))
		m.work = a.settle(now, m)
	}
	for _, m := range a.members {
		a.report(now, m, m.work)
	}
	start := gate.Now()
	decided := a.sched.Ready(vcpu.Time(now))
	if n := len(decided); n > 0 {
		a.costs.add((gate.Now()-start)/int64(n), uint64(n))
	}
	var closed [1 + gate.NumClasses]bool // by policies.Class
	for _, act := range decided {
		a.apply(now, act)
		closed[act.Lease.Class] = !act.Open
	}
	for _, m := range a.members {
		m.renew()
	}
	// No domain received the revoked lease: the requests that wait there are reported at the next sample, which no doorbell
	// announces.
	if slices.Contains(closed[:], true) {
		return 0
	}
	next := a.sched.Next()
	if next == vcpu.Forever {
		return beatEvery
	}
	if a.coordinates() {
		next = a.glances.next(next)
	}
	return min(max(next.Sub(vcpu.Time(gate.Now())), 0), beatEvery)
}

// guard repairs a gate page if a worker has changed a field that only the daemon writes, and expels the domain, whose
// workers may have computed out of turn. a.mu is held.
func (a *accelerator) guard(m *avcpu) {
	if m.page.Intact() {
		return
	}
	m.page.Mend()
	a.forged(m)
}

// forged expels a domain after one of its workers wrote values that no honest worker writes. a.mu is held.
func (a *accelerator) forged(m *avcpu) {
	if !m.forged && a.expel != nil {
		m.forged = true
		a.expel(m)
	}
}

// expelled records that a domain's workers have been ended, so that a later worker of the domain can be expelled again.
func (a *accelerator) expelled(m *avcpu) {
	a.mu.Lock()
	defer a.mu.Unlock()
	m.forged = false
}

// look reports to the scheduler the domain's use and work since the last sample. a.mu is held.
func (a *accelerator) look(now int64, m *avcpu) { a.report(now, m, a.settle(now, m)) }

// settle charges a domain for its use since the last sample and returns its workers' current work. All domains are
// charged before any new work is reported to the scheduler: use in a period in which no other domain had work costs no
// other domain anything.
func (a *accelerator) settle(now int64, m *avcpu) gate.Work {
	w := m.page.Look()
	if m.paused {
		w = stopped(w)
	}
	// Read after the page, so that all use of a domain that looks idle is charged: workers release engines before they
	// end requests.
	held := m.account.Charge(a.burst())
	used := vcpu.Usage{Compute: time.Duration(held.Compute), Copy: time.Duration(held.copies())}
	m.page.Ran(used.Compute > 0, used.Copy > 0)
	if m.leases != 0 {
		open := time.Duration(max(now-max(m.looked, m.opened), 0))
		used.Stalled = max(open-used.Busy(), 0)
		m.turns.add(open, used.Busy())
		if m.turns.wasted() && a.keepsOut(m) {
			used.Compute += used.Stalled // no policy waives it
			used.Stalled = 0
		}
	}
	if a.settings.Accounts != "mrq" {
		used.Pauses, used.Paused = count(w.Pauses), time.Duration(w.Paused)
	}
	m.looked = now
	m.busy = w.Busy()
	waiting := int64(0)
	for c := range gate.NumClasses {
		waiting += w.Held[c]
		m.stuck[policyClass[c]] = w.Heads[c].Seq != 0 && w.Flying[c] == 0 || w.Held[c] > 0 && w.Held[c] == w.Flying[c]
	}
	m.stuck[policies.AnyClass] = w.Pending > 0 && w.InFlight == 0 || waiting > 0 && waiting == w.InFlight
	a.charge(now, m, used, w.Ended)
	return w
}

// report passes to the scheduler the work that a domain has.
func (a *accelerator) report(now int64, m *avcpu, w gate.Work) {
	if a.settings.Accounts == "mrq" {
		a.classes(now, m, w)
	} else {
		a.signal(now, m, w)
	}
	for c, h := range w.Heads {
		if h != m.heads[c] || m.again && h.Seq != 0 {
			m.heads[c] = h
			a.step(now, policies.Event{Kind: policies.Head, Domain: policies.Domain{ID: m.id}, Class: policyClass[c],
				Request: requestOf(gate.Class(c), h)})
		}
	}
	m.again = false
	a.withdraw(now, m, w)
	if m.leases != 0 && w.Busy() {
		m.page.Watch()
	}
}

// keepsOut reports whether a domain with a turn blocks another domain that has work. a.mu is held.
func (a *accelerator) keepsOut(m *avcpu) bool {
	for _, other := range a.members {
		if other != m && other.busy && other.leases == 0 && !other.paused {
			return true
		}
	}
	return false
}

// leastBurst is the shortest bound on one hold of an engine, whatever the kernel timeout.
const leastBurst = time.Minute

// burst returns the longest time for which a domain may hold an engine before it is charged. a.mu is held.
func (a *accelerator) burst() time.Duration { return 2 * max(a.settings.KernelTimeout, leastBurst) }

// requestOf returns the policy's representation of a request that waits at a gate.
func requestOf(c gate.Class, h gate.Head) policies.Request {
	r := policies.Request{Seq: h.Seq, Predicted: time.Duration(h.Predicted), Known: h.Known, Key: h.Key}
	if c == gate.Copy {
		r.Bytes = h.Size
	} else {
		r.Threads = h.Size
	}
	return r
}

// signal reports to the scheduler whether a domain has work. a.mu is held.
func (a *accelerator) signal(now int64, m *avcpu, w gate.Work) {
	switch {
	case w.Busy():
		a.wake(now, 0, m, policies.Arrived)
		m.drained = 0
	case m.drained == 0 || w.IdleSince > m.drained:
		m.drained = max(w.IdleSince, 1)
		a.wake(now, w.IdleSince, m, policies.Drained)
	}
}

// classes reports to the scheduler, for each engine class, whether a domain has work for it. a.mu is held.
func (a *accelerator) classes(now int64, m *avcpu, w gate.Work) {
	for c := range gate.NumClasses {
		busy := w.Flying[c] > 0 || w.Heads[c].Seq != 0
		e := policies.Event{Kind: policies.Wake, Domain: policies.Domain{ID: m.id}, Class: policyClass[c], Signal: policies.Drained}
		if busy {
			e.Signal = policies.Arrived
		}
		switch {
		case busy && !m.worked[c] && m.rested[c] > 0:
			pause := vcpu.Usage{Pauses: 1, Paused: time.Duration(now - m.rested[c])}
			a.step(now, policies.Event{Kind: policies.Charge, Domain: e.Domain, Class: e.Class, Used: pause})
		case !busy && m.worked[c]:
			m.rested[c] = now
		}
		if busy || m.worked[c] {
			a.step(now, e)
		}
		m.worked[c] = busy
	}
}

// policyClass maps a gate's class to the policy's.
var policyClass = [gate.NumClasses]policies.Class{gate.Compute: policies.Compute, gate.Copy: policies.Copy}

// charge passes to the scheduler the time that a domain used, each class separately. a.mu is held.
func (a *accelerator) charge(now int64, m *avcpu, u vcpu.Usage, ended [gate.NumClasses]uint64) {
	e := policies.Event{Kind: policies.Charge, Domain: policies.Domain{ID: m.id}, Class: policies.Compute}
	e.Used = vcpu.Usage{Compute: u.Compute, Idle: u.Idle, Stalled: u.Stalled, Requests: count(ended[gate.Compute]), Pauses: u.Pauses, Paused: u.Paused}
	if e.Used != (vcpu.Usage{}) {
		a.step(now, e)
	}
	e.Class, e.Used = policies.Copy, vcpu.Usage{Copy: u.Copy, Requests: count(ended[gate.Copy])}
	if e.Used != (vcpu.Usage{}) {
		a.step(now, e)
	}
}

// count converts a worker-supplied request count, bounding it to 2^20.
func count(n uint64) int { return int(min(n, 1<<20)) }

// turns tracks how long a domain recently had the turn, and for how much of that time it held engines. A program that
// queues little runs dry now and then because a busy host wakes the program or its worker late, though it is
// backlogged: its unused time is its own loss. A domain that blocks others and hardly uses its turns is charged for
// them, since no other domain could use them. A worker that hostile code has taken over may report any use of such
// time.
type turns struct{ had, used float64 } // ns

const (
	// turnsHalf is the turn time after which the weight of earlier turns has halved.
	turnsHalf = float64(time.Second)
	// turnsPart is the reciprocal of the least share of its turns that a domain uses: less than an honest domain uses
	// on a host whose processors are taken.
	turnsPart = 8
	// turnsLeast is the least turn time on which wasted decides.
	turnsLeast = float64(200 * time.Millisecond)
)

func (t *turns) add(had, used time.Duration) {
	left := math.Exp2(-float64(had) / turnsHalf)
	t.had, t.used = t.had*left+float64(had), t.used*left+float64(used)
}

// wasted reports whether the domain hardly used its turns.
func (t *turns) wasted() bool { return t.had > turnsLeast && t.used*turnsPart < t.had }

func (a *accelerator) step(now int64, e policies.Event) { a.sched.Step(vcpu.Time(now), &e) }

// wake passes a domain's signal to the scheduler, with the time since when it holds, or 0 if that is unknown.
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
	if a.settings.CPUFollows && act.Lease.Class != policies.Copy {
		m.tell(now, a.follower, act)
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
		m.page.Revoke(classes(act.Lease.Class))
		a.turnOf(m)
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
	a.turnOf(m)
	m.page.Grant(m.terms[act.Lease.Class])
	m.page.Watch()
}

// turnOf sets the engines for which it is a domain's turn. a.mu is held.
func (a *accelerator) turnOf(m *avcpu) {
	open := m.leases
	if m.paused {
		open = 0
	}
	m.account.Turn(open.Has(gate.Compute), open.Has(gate.Copy), a.settings.KernelTimeout)
}

// renew grants a budget again if a request waits under it while nothing is in flight, or while all in-flight work
// awaits its turn: all use has been reported, and the policy leaves the lease unchanged. Budget reserved for requests
// that never executed, because the worker died or the lease of another class preceded, is not returned otherwise.
func (m *avcpu) renew() {
	for c, stuck := range m.stuck {
		if t := m.terms[c]; stuck && t.Budget > 0 && !m.paused {
			m.page.Grant(t)
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

func (a *accelerator) find(id vcpu.ID) (int, bool) {
	return slices.BinarySearchFunc(a.members, id, func(m *avcpu, id vcpu.ID) int { return cmp.Compare(m.id, id) })
}

// attach adds a domain with its store, its account and its page, whose gate is closed or left over from the previous
// daemon.
func (a *accelerator) attach(c configs.Domain, cpu vcpu.Credits, page *gate.Page, store *os.File, account Account) *avcpu {
	a.mu.Lock()
	defer a.mu.Unlock()
	id := a.idOf(c.Name)
	now := gate.Now()
	m := &avcpu{id: id, domain: c.Name, page: page, store: store, hw: a.hw, account: account, shares: sharesOf(id, c, cpu)}
	m.looked = now
	a.turnOf(m) // it has no turn yet
	page.SetInFlightLimit(int64(a.settings.InFlight))
	if a.hw != nil { // tests of the loop have no hardware
		page.SetStops(a.hw.Profile().Stops)
	}
	page.Tick(now + int64(a.silence))
	page.Revoke(gate.AllClasses)
	at, _ := a.find(id)
	a.members = slices.Insert(a.members, at, m)
	a.step(now, policies.Event{Kind: policies.Attach, Domain: m.shares})
	a.wake(now, 0, m, policies.ContextOpened)
	a.bell.Ring()
	return m
}

// detach removes a domain. Its page must no longer be in use.
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

// sharesOf returns a domain's credits and guarantees in the policy's form.
func sharesOf(id vcpu.ID, c configs.Domain, cpu vcpu.Credits) vcpu.Domain {
	return vcpu.Domain{ID: id, Credits: vcpu.Credits(c.Credits), CPU: cpu, Promise: promiseOf(c)}
}

// setShares changes a domain's credits and guarantees.
func (a *accelerator) setShares(m *avcpu, c configs.Domain, cpu vcpu.Credits) {
	a.mu.Lock()
	defer a.mu.Unlock()
	next := sharesOf(m.id, c, cpu)
	if m.shares == next {
		return
	}
	m.shares = next
	a.step(gate.Now(), policies.Event{Kind: policies.Attach, Domain: m.shares})
	a.bell.Ring()
}

// reap frees everything that a dead worker held on the page, except device segments: see Daemon.clearSegments.
func (a *accelerator) reap(m *avcpu, slot int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	m.page.Reap(slot)
	a.bell.Ring()
}

// configure applies new settings and, if they choose another policy, the policies p. The attached domains, their use
// and their waiting requests are kept.
func (a *accelerator) configure(c configs.Accelerator, p []policies.Policy) {
	a.mu.Lock()
	defer a.mu.Unlock()
	old := a.settings
	a.settings = c
	for _, m := range a.members {
		m.page.SetInFlightLimit(int64(c.InFlight))
	}
	if choice(c) != choice(old) {
		now := gate.Now()
		for _, m := range a.members {
			a.look(now, m)
			if c.Accounts != old.Accounts { // work is reported in another form from now on
				a.wake(now, 0, m, policies.Drained)
				m.drained, m.worked = 0, [gate.NumClasses]bool{}
			}
		}
		if a.tape != nil {
			next := choice(c)
			a.tape(policies.Record{At: vcpu.Time(now), Choice: &next})
		}
		a.sched.Use(vcpu.Time(now), p...)
		a.costs = costs{}
	}
	a.bell.Ring()
}

// record passes to tape every event and decision of the scheduler, which restarts with the same policy; a nil tape ends
// the recording. It fails while another recording is active.
func (a *accelerator) record(tape func(policies.Record)) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if tape != nil && a.tape != nil {
		return control.Errorf(control.CodeConflict, "accelerator %q is being traced already", a.name)
	}
	if tape != nil {
		tape = a.named(tape)
	}
	a.tape = tape
	err := a.sched.Record(vcpu.Time(gate.Now()), choice(a.settings), tape)
	a.bell.Ring()
	return err
}

// named returns a tape that adds to attach events the domain's name, which the scheduler does not have. The caller
// holds a.mu when it calls either tape.
func (a *accelerator) named(tape func(policies.Record)) func(policies.Record) {
	return func(r policies.Record) {
		if e := r.Event; e != nil && e.Kind == policies.Attach {
			for name, id := range a.ids {
				if id == e.Domain.ID {
					r.Name = name
				}
			}
		}
		tape(r)
	}
}

func (a *accelerator) current() configs.Accelerator {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.settings
}
