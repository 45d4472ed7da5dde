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

// The heartbeat: gates count as open when no beat came for aliveFor, and beats
// come at least every beatEvery.
const (
	aliveFor  = time.Second
	beatEvery = 200 * time.Millisecond
)

// mendEvery is how often the daemon checks workers' shared pages for damage.
const mendEvery = 50 * time.Millisecond

// accelerator is one accelerator and its scheduler loop. The loop takes mu for
// a turn at a time; others take it to attach and detach domains and to look.
type accelerator struct {
	name string
	hw   Hardware
	bell *gate.Bell
	log  *slog.Logger

	// expel has all workers of a domain ended. It is called with mu held, and doesn't wait. nil: nothing is done.
	expel func(*avcpu)

	silence time.Duration // after so much of it gates count as open: aliveFor, but in tests

	// Guarded by the daemon's mu.
	load     meter              // of the time that its engines were held
	switched map[string]setting // laid over the configuration by `pegasus policy`

	mu        sync.Mutex
	settings  configs.Accelerator
	follower  *follower                // of its windows, if the settings want one
	see       func(time.Duration) bool // has policies told what the CPUs do, now; nil: nobody knows
	glances   glances                  // that were made for its decisions
	sched     *policies.Scheduler
	members   []*avcpu // by id
	nextID    vcpu.ID
	ids       map[string]vcpu.ID     // of domains that are here, and of those whose accounts are kept
	passing   func(name string) bool // reports whether a domain lasts only as long as its processes; needs the daemon's mu
	decisions uint64
	costs     costs                 // of the decisions of the policy in force
	tape      func(policies.Record) // who follows the scheduler; nil: nobody
	windows   func(control.Span)    // who wants to know when gates were open
}

// avcpu is a domain on its accelerator. All but its page is guarded by the
// accelerator's mu.
type avcpu struct {
	id      vcpu.ID
	domain  string
	page    *gate.Page
	store   *os.File // of the domain's device segments
	hw      Hardware
	account Account     // of the engine time that the domain has held
	shares  vcpu.Domain // what it is owed

	leases  gate.Classes                    // for which its gate is open
	terms   [1 + gate.NumClasses]gate.Terms // of its leases, by policies.Class
	stuck   [1 + gate.NumClasses]bool       // at the last look a request waited and nothing was in flight, or all that was waited for its turn
	window  vcpu.Time                       // until when the CPUs follow, as was told
	opened  int64                           // when the gate was last opened
	since   [1 + gate.NumClasses]int64      // its window, by policies.Class, is open and told of up to then; 0: closed, or nobody wants to know
	looked  int64                           // when the page was last looked at
	work    gate.Work                       // at the last look
	drained int64                           // since when it has no work, as the scheduler was told; 0 after it was told of some
	busy    bool                            // work was pending or in flight at the last look
	forged  bool                            // a worker has changed what only the daemon writes, and the domain is being expelled

	paused    bool // its gate stays closed
	withdrawn bool // and the scheduler was told that it needs no turn

	heads  [gate.NumClasses]gate.Head // as the scheduler was told
	again  bool                       // its gate closed: what still waits there is told again
	worked [gate.NumClasses]bool
	rested [gate.NumClasses]int64 // since when a class has no work; 0: it never had
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

// newPolicies makes an accelerator's policy; one for each class of engines if they
// are accounted apart.
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

// run is the scheduler loop: look at the gates, decide, sleep until the next
// decision is due, a worker rings, or a beat is.
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

// mend repairs pages that hostile workers damage, until ctx ends. A domain's workers alone can write over its queues: they
// are ended.
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

// turn does what is due now and returns how long nothing will be.
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
	if slices.Contains(closed[:], true) { // nobody got what was taken away: what waits there is told with the next look, for which nobody rings
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

// guard mends a gate page in which a worker has changed what only the daemon writes, and has
// the domain expelled: its workers may have been computing out of turn.
func (a *accelerator) guard(m *avcpu) {
	if m.page.Intact() {
		return
	}
	m.page.Mend()
	a.forged(m)
}

// forged has a domain expelled of which a worker has written values that no honest worker writes. a.mu is held.
func (a *accelerator) forged(m *avcpu) {
	if !m.forged && a.expel != nil {
		m.forged = true
		a.expel(m)
	}
}

// expelled notes that the workers of a domain have been ended; those that came since can be, too.
func (a *accelerator) expelled(m *avcpu) {
	a.mu.Lock()
	defer a.mu.Unlock()
	m.forged = false
}

// look tells the scheduler what happened to a domain since the last look.
func (a *accelerator) look(now int64, m *avcpu) { a.report(now, m, a.settle(now, m)) }

// settle charges a domain for its use since the last look, and returns its workers' present work. All domains are charged before
// the scheduler receives any news of work: use while no other domain had work is no other domain's loss.
func (a *accelerator) settle(now int64, m *avcpu) gate.Work {
	w := m.page.Look()
	if m.paused {
		w = stopped(w)
	}
	// After the page, so that all that a domain has used that looks idle is charged: workers release engines before they end
	// requests.
	held := m.account.Charge(a.burst())
	used := vcpu.Usage{Compute: time.Duration(held.Compute), Copy: time.Duration(held.copies())}
	m.page.Ran(used.Compute > 0, used.Copy > 0)
	if m.leases != 0 {
		open := time.Duration(max(now-max(m.looked, m.opened), 0))
		used.Stalled = max(open-used.Busy(), 0)
		m.turns.add(open, used.Busy())
		if m.turns.wasted() && a.keepsOut(m) {
			used.Compute += used.Stalled // no policy has it for nothing
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

// report tells the scheduler which work a domain has.
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

// keepsOut reports whether a domain with a turn keeps another one out, which has work. a.mu is held.
func (a *accelerator) keepsOut(m *avcpu) bool {
	for _, other := range a.members {
		if other != m && other.busy && other.leases == 0 && !other.paused {
			return true
		}
	}
	return false
}

// leastBurst is how long an engine can be held at once in any case.
const leastBurst = time.Minute

// burst is for how long a domain may hold an engine at most without being charged. a.mu is held.
func (a *accelerator) burst() time.Duration { return 2 * max(a.settings.KernelTimeout, leastBurst) }

// requestOf is a policy's word for a request that waits at a gate.
func requestOf(c gate.Class, h gate.Head) policies.Request {
	r := policies.Request{Seq: h.Seq, Predicted: time.Duration(h.Predicted), Known: h.Known, Key: h.Key}
	if c == gate.Copy {
		r.Bytes = h.Size
	} else {
		r.Threads = h.Size
	}
	return r
}

// signal tells whether a domain has work.
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

// classes tells of each class of engines whether a domain has work for it.
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

// policyClass is a policy's word for a gate's class.
var policyClass = [gate.NumClasses]policies.Class{gate.Compute: policies.Compute, gate.Copy: policies.Copy}

// charge tells the scheduler what a domain used, of each class by itself.
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

// count is a worker's word for how many requests ended, within reason.
func count(n uint64) int { return int(min(n, 1<<20)) }

// turns is for how long a domain had the turn, of late, and for how long of that it held engines. A program that keeps little
// queued runs dry now and then, because a busy host wakes it, or its worker, late, and is backlogged all the same: unused
// time is its own to lose. But a domain that keeps others out and hardly uses its turns is charged for these, since nobody
// else could use them. A worker that hostile code has taken over may report any use of such time.
type turns struct{ had, used float64 } // ns

const (
	// turnsHalf is the turn time after which earlier turns count for half.
	turnsHalf = float64(time.Second)
	// turnsPart is the least part of its turns that a domain uses, one in so many: less than any honest one on a host whose
	// processors are taken.
	turnsPart = 8
	// turnsLeast is the turn time that there must be to judge by.
	turnsLeast = float64(200 * time.Millisecond)
)

func (t *turns) add(had, used time.Duration) {
	left := math.Exp2(-float64(had) / turnsHalf)
	t.had, t.used = t.had*left+float64(had), t.used*left+float64(used)
}

// wasted reports whether its turns were hardly used.
func (t *turns) wasted() bool { return t.had > turnsLeast && t.used*turnsPart < t.had }

func (a *accelerator) step(now int64, e policies.Event) { a.sched.Step(vcpu.Time(now), &e) }

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

// turn says for which engines it is a domain's turn. a.mu is held.
func (a *accelerator) turnOf(m *avcpu) {
	open := m.leases
	if m.paused {
		open = 0
	}
	m.account.Turn(open.Has(gate.Compute), open.Has(gate.Copy), a.settings.KernelTimeout)
}

// renew grants a budget again under which a request waits though nothing is in flight, or all that is waits for
// its turn: all that was used has been told, and the policy leaves the lease as it is. What was
// reserved for requests that were never executed, of a worker that died or under an
// earlier lease of another class, is not given back otherwise.
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

// classes is the gate's word for a policy's class.
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

// attach adds a domain with its store, its account and its page, whose gate is closed or left over from a
// daemon before.
func (a *accelerator) attach(c configs.Domain, cpu vcpu.Credits, page *gate.Page, store *os.File, account Account) *avcpu {
	a.mu.Lock()
	defer a.mu.Unlock()
	id := a.idOf(c.Name)
	now := gate.Now()
	m := &avcpu{id: id, domain: c.Name, page: page, store: store, hw: a.hw, account: account, shares: sharesOf(id, c, cpu)}
	m.looked = now
	a.turnOf(m) // it has none yet
	page.SetInFlightLimit(int64(a.settings.InFlight))
	if a.hw != nil { // tests of the loop have none
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

// sharesOf is what a domain is owed, in a policy's words.
func sharesOf(id vcpu.ID, c configs.Domain, cpu vcpu.Credits) vcpu.Domain {
	return vcpu.Domain{ID: id, Credits: vcpu.Credits(c.Credits), CPU: cpu, Promise: promiseOf(c)}
}

// setShares changes what a domain is owed.
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

// reap frees what a dead worker held here, but for device segments: see Daemon.clearSegments.
func (a *accelerator) reap(m *avcpu, slot int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	m.page.Reap(slot)
	a.bell.Ring()
}

// configure takes up new settings, with their policy p if they ask for another.
// Nothing is lost: who is attached, what they used and what they wait for stays.
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
			if c.Accounts != old.Accounts { // from now on work is told otherwise
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

// record has tape told all that the scheduler is told and decides, which begins
// anew with the same policy; nil ends that. It fails while somebody else records.
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

// named has tape told what domains are called, which a scheduler doesn't know. a.mu is held whenever it is.
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
