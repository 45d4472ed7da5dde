package policies

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"pegasus/vcpu"
)

// Scheduler drives one accelerator's policy: Step takes events in, Ready returns the actions for the gates,
// and Next returns the latest time of the next Ready. It belongs to one goroutine. It allocates nothing per
// decision.
//
// A driver's loop is: sleep until Next or until a doorbell rings; read the gate pages of the domains with
// gates that are open or were just closed, and of those that rang; Step the time they used since the last
// read, then whether they have work (Arrived, or Drained and since when); Ready; write its actions to the
// gate pages. Work that arrives while a gate is open need not ring; the driver reports it at the next read.
type Scheduler struct {
	accounts   []account
	members    map[ID]*member
	order      []*member // all, by ID
	absent     int       // members that have left; their accounts are kept
	sweepAt    Time      // when settled accounts among them are dropped
	actions    []Action
	last       Time
	strays     Usage
	sample     *vcpu.Sample
	recorder   func(Record) // receives every record, if set
	unrecorded int          // leading actions of the next Ready that are not recorded
}

// busy reports whether any work is pending or in flight.
func (m *member) busy() bool { return m.work != [numClasses]bool{} }

// account is the part of an accelerator that one policy decides about: all engines, or those of one class.
type account struct {
	policy Policy
	class  Class
	next   Time
}

// accountsOf gives each class of engines its own account if there are two policies (Gdev's MRQ), or one
// account to all engines (SDQ).
func accountsOf(all []Policy) []account {
	switch len(all) {
	case 1:
		return []account{{all[0], AnyClass, Forever}}
	case 2:
		return []account{{all[0], Compute, Forever}, {all[1], Copy, Forever}}
	}
	panic(fmt.Sprintf("policies: %d policies for one accelerator", len(all)))
}

// concerns reports whether an event of class c affects the account.
func (a *account) concerns(c Class) bool {
	return c == AnyClass || a.class == AnyClass || c == a.class
}

// member is the Scheduler's record of a domain.
type member struct {
	stat    Stat
	gen     uint64
	open    [numClasses]bool // leases in force
	heads   [numClasses]Request
	again   [numClasses]bool // its gate closed: a request that still waits there counts as new
	context bool
	work    [numClasses]bool // pending or in flight, as last reported
	arrived Time             // since when it waits at a closed gate
	absent  bool             // it has left: only its account is kept
	left    Time             // when it left
	kept    Balances         // for the next policy, while the current one keeps no account
}

// NewScheduler returns a Scheduler without domains. Two policies share an accelerator: the first lends the
// compute engine, the second the copy engines.
func NewScheduler(p ...Policy) *Scheduler {
	return &Scheduler{accounts: accountsOf(p), members: make(map[ID]*member)}
}

// Step processes one event. Events of domains that are not attached are ignored, except for the time that
// they used: that is counted as stray, and charged to the domain's account if one is kept. The caller keeps
// ownership of the event.
func (s *Scheduler) Step(now Time, e *Event) {
	now = s.clock(now)
	if s.recorder != nil {
		s.recordEvent(now, *e)
	}
	switch e.Kind {
	case Attach:
		s.attach(now, e)
		return
	case Observe:
		s.observe(now, e.Sample)
		return
	}
	m := s.members[e.Domain.ID]
	if e.Class >= numClasses {
		return
	}
	if m == nil || m.absent {
		if e.Kind == Charge {
			u := sane(&e.Used)
			if s.strays.Add(u); m != nil {
				s.charge(now, m, e.Class, u)
			}
		}
		return
	}
	switch e.Kind {
	case Detach:
		s.detach(now, m)
	case Wake:
		s.wake(now, m, e)
	case Charge:
		u := sane(&e.Used)
		m.stat.Used.Add(u)
		s.charge(now, m, e.Class, u)
	case Head:
		s.head(now, m, e.Class, e.Request)
	}
}

// charge reports to each account the use of its engines.
func (s *Scheduler) charge(now Time, m *member, c Class, u *Usage) {
	for i := range s.accounts {
		a := &s.accounts[i]
		if !a.concerns(c) || m.absent && a.ledger() == nil {
			continue
		}
		part := *u
		switch a.class {
		case Compute:
			part.Copy = 0
		case Copy:
			part.Compute = 0
		}
		a.policy.Charge(now, m.stat.Domain.ID, part)
	}
}

// Ready returns the actions that the gates must take now, in this order. The slice is valid until the next
// call.
func (s *Scheduler) Ready(now Time) []Action {
	now = s.clock(now)
	s.sweep(now)
	for i := range s.accounts {
		a := &s.accounts[i]
		for {
			d, ok, wakeAt := a.policy.Pick(now)
			if !ok {
				a.next = wakeAt
				break
			}
			if a.class != AnyClass {
				d.Lease.Class = a.class
			}
			s.decide(now, d)
		}
	}
	out := s.actions
	s.actions = s.actions[:0]
	if s.recorder != nil {
		s.recordActions(now, out)
	}
	return out
}

// Next returns when Ready must be called again if no event comes before; Forever if that is not needed.
func (s *Scheduler) Next() Time {
	next := Forever
	for i := range s.accounts {
		next = min(next, s.accounts[i].next)
	}
	return next
}

// Use replaces the policy, or the policies as for NewScheduler. The domains' usage, balances and work states
// are preserved; open gates close with the next Ready unless the new policy opens them too.
func (s *Scheduler) Use(now Time, p ...Policy) {
	now = s.clock(now)
	balances := make([]Balances, len(s.order))
	for i, m := range s.order {
		balances[i] = s.balances(m).carried(len(s.accounts), len(p))
	}
	s.accounts = accountsOf(p)
	s.absent = 0
	kept := s.order[:0]
	for at, m := range s.order {
		s.closeAll(now, m)
		for i := range s.accounts {
			s.introduce(now, i, m, balances[at][i])
		}
		if !m.absent || s.leaves(now, m) {
			kept = append(kept, m)
		}
	}
	clear(s.order[len(kept):])
	s.order = kept
	s.observe(now, s.sample)
}

// introduce attaches a domain to the new policy of the i-th account, with its state.
func (s *Scheduler) introduce(now Time, i int, m *member, balance time.Duration) {
	a, id := &s.accounts[i], m.stat.Domain.ID
	a.policy.Attach(now, m.stat.Domain)
	s.restore(now, i, m, balance)
	if m.context {
		a.policy.Wake(now, id, ContextOpened)
	}
	for c, work := range m.work {
		if work && a.concerns(Class(c)) {
			a.policy.Wake(now, id, Arrived)
		}
	}
	if q, ok := a.policy.(Queue); ok {
		for c, r := range m.heads {
			if r != (Request{}) && a.concerns(Class(c)) {
				q.Head(now, id, Class(c), r)
			}
		}
	}
}

func (s *Scheduler) head(now Time, m *member, c Class, r Request) {
	if r.Predicted = limit(r.Predicted); r.Seq == 0 {
		r = Request{}
	}
	if m.heads[c] == r && (!m.again[c] || r == Request{}) {
		return
	}
	m.again[c] = false
	m.heads[c] = r
	for i := range s.accounts {
		if q, ok := s.accounts[i].policy.(Queue); ok && s.accounts[i].concerns(c) {
			q.Head(now, m.stat.Domain.ID, c, r)
		}
	}
}

func (s *Scheduler) observe(now Time, sample *vcpu.Sample) {
	s.sample = sample
	if sample == nil {
		return
	}
	for i := range s.accounts {
		if o, ok := s.accounts[i].policy.(Observer); ok {
			o.Observe(now, sample)
		}
	}
}

// Observes reports whether a policy uses samples of the hypervisor's schedule.
func (s *Scheduler) Observes() bool {
	return slices.ContainsFunc(s.accounts, func(a account) bool {
		_, ok := a.policy.(Observer)
		return ok
	})
}

// Overloaded reports whether the policy misses its promises, so that placement must halve the accelerator's
// weight.
func (s *Scheduler) Overloaded() bool {
	return slices.ContainsFunc(s.accounts, func(a account) bool {
		l, ok := a.policy.(Loaded)
		return ok && l.Overloaded()
	})
}

// Explain returns in one line why the policy last decided as it did.
func (s *Scheduler) Explain() string {
	var why []string
	for i := range s.accounts {
		if e, ok := s.accounts[i].policy.(Explainer); ok {
			why = append(why, e.Explain())
		}
	}
	return strings.Join(why, " | ")
}

// Refusal returns the slot of the policy that refuses the request waiting at the domain's gate, and the
// reason; "": none waits, or the policy does not report it.
func (s *Scheduler) Refusal(id ID) string {
	if m := s.members[id]; m == nil || m.absent {
		return ""
	}
	var why []string
	for i := range s.accounts {
		r, ok := s.accounts[i].policy.(Refuser)
		if !ok {
			continue
		}
		if w := r.Refusal(id); w != "" {
			why = append(why, w)
		}
	}
	return strings.Join(why, " | ")
}

// Stat returns the statistics of a domain.
func (s *Scheduler) Stat(id ID) (Stat, bool) {
	m := s.members[id]
	if m == nil || m.absent {
		return Stat{}, false
	}
	return m.stat, true
}

// Stats appends the statistics of every attached domain to dst, by ID.
func (s *Scheduler) Stats(dst []Stat) []Stat {
	for _, m := range s.order {
		if !m.absent {
			dst = append(dst, m.stat)
		}
	}
	return dst
}

// Strays returns the time used by domains that had left when it was reported.
func (s *Scheduler) Strays() Usage { return s.strays }

// clock ensures that a policy never sees time run backwards.
func (s *Scheduler) clock(now Time) Time {
	s.last = max(s.last, now)
	return s.last
}

func (s *Scheduler) attach(now Time, e *Event) {
	d := e.Domain
	d.Credits = d.Credits.OrDefault()
	m := s.members[d.ID]
	unknown := m == nil
	switch {
	case unknown:
		m = &member{}
		s.members[d.ID] = m
		s.order = slices.Insert(s.order, s.index(d.ID), m)
	case m.absent:
		s.absent--
		*m = member{kept: m.kept}
	}
	m.stat.Domain = d
	balances := e.Balances
	if len(s.accounts) == 1 { // the balances may come from a scheduler that had two accounts
		balances = balances.carried(2, 1)
	}
	for i := range s.accounts {
		s.accounts[i].policy.Attach(now, d)
		if unknown {
			s.restore(now, i, m, balances[i])
		}
	}
}

// detach removes a domain. Its account is kept until it is settled.
func (s *Scheduler) detach(now Time, m *member) {
	s.closeAll(now, m)
	at := s.index(m.stat.Domain.ID)
	if !s.leaves(now, m) {
		s.order = slices.Delete(s.order, at, at+1)
	}
}

// index returns the position in order that a domain has or would have.
func (s *Scheduler) index(id ID) int {
	at, _ := slices.BinarySearchFunc(s.order, id, func(m *member, id ID) int {
		return int(int64(m.stat.Domain.ID) - int64(id))
	})
	return at
}

func (s *Scheduler) wake(now Time, m *member, e *Event) {
	since := now
	if e.Since > 0 {
		since = min(since, e.Since)
	}
	switch e.Signal {
	case Arrived:
		m.work[e.Class] = true
		if m.stat.State == vcpu.Idle || m.stat.State == vcpu.Closing {
			m.arrived = since
			m.stat.State = m.stat.State.Move(vcpu.Waiting)
		}
	case Drained:
		if m.work[e.Class] = false; e.Class == AnyClass {
			m.work = [numClasses]bool{}
		}
		if m.busy() {
			break
		}
		if m.stat.State == vcpu.Waiting || m.stat.State == vcpu.Closing {
			m.stat.State = m.stat.State.Move(vcpu.Idle)
		}
	case ContextOpened, ContextClosed:
		m.context = e.Signal == ContextOpened
	}
	for i := range s.accounts {
		if s.accounts[i].concerns(e.Class) {
			s.accounts[i].policy.Wake(since, m.stat.Domain.ID, e.Signal)
		}
	}
}

// decide turns a decision of the policy into an action.
func (s *Scheduler) decide(now Time, d Decision) {
	m := s.members[d.Lease.Domain]
	switch {
	case m == nil:
		panic("policies: decision about a domain that is not attached")
	case d.Op == Grant:
		s.open(now, m, d.Lease)
	default:
		s.close(now, m, d.Lease.Class)
	}
}

func (s *Scheduler) open(now Time, m *member, l Lease) {
	if m.stat.State != vcpu.Open {
		if m.busy() {
			m.stat.WaitMean += (now.Sub(m.arrived) - m.stat.WaitMean) / 8
		}
		m.stat.State = m.stat.State.Move(vcpu.Open)
		m.stat.Leases++
		m.gen++
	}
	m.open[l.Class] = true
	s.actions = append(s.actions, Action{m.stat.Domain.ID, m.gen, true, l})
}

// close ends the lease of a class: the lease for any class, or one for a single class.
func (s *Scheduler) close(now Time, m *member, c Class) {
	if !m.open[c] {
		return
	}
	m.open[c] = false
	for i := range m.again {
		m.again[i] = true
	}
	if m.open == [numClasses]bool{} {
		m.stat.State = m.stat.State.Move(vcpu.Closing)
		m.arrived = now
	}
	s.actions = append(s.actions, Action{Domain: m.stat.Domain.ID, Generation: m.gen, Lease: Lease{Domain: m.stat.Domain.ID, Class: c}})
}

func (s *Scheduler) closeAll(now Time, m *member) {
	for c := range numClasses {
		s.close(now, m, c)
	}
}

// sane returns u with each time limited to 0 to maxDebt, which no account can exceed, and each count to a
// million.
func sane(u *Usage) *Usage {
	if possible(u.Compute) && possible(u.Copy) && possible(u.Idle) && possible(u.Stalled) && possible(u.Switch) &&
		several(u.Requests) == u.Requests && several(u.Pauses) == u.Pauses && possible(u.Paused) {
		return u
	}
	return &Usage{Compute: limit(u.Compute), Copy: limit(u.Copy), Idle: limit(u.Idle), Stalled: limit(u.Stalled),
		Switch: limit(u.Switch), Requests: several(u.Requests), Pauses: several(u.Pauses), Paused: limit(u.Paused)}
}

func possible(d time.Duration) bool { return limit(d) == d }

func several(n int) int { return min(max(n, 0), 1<<20) }

func limit(d time.Duration) time.Duration { return min(max(d, 0), maxDebt) }
