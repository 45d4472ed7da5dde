package policies

import (
	"slices"
	"time"

	"pegasus/vcpu"
)

// Scheduler drives one accelerator's policy: events go in by Step, what the gates
// shall do comes out by Ready, and Next says when to call Ready again at the
// latest. It belongs to one goroutine. Nothing is allocated per decision.
//
// A driver's loop is: sleep until Next or until something rings; look at the gate
// pages of the domains whose gates are open or were just closed, and of those that
// rang; Step what they used since the last look, then whether they have work
// (Arrived, or Drained and since when); Ready; write its actions to the gate pages.
// Work that comes while a gate is open need not ring, but is told at the next look.
type Scheduler struct {
	policy  Policy
	members map[ID]*member
	order   []*member // by ID, for whoever wants them all
	actions []Action
	last    Time
	next    Time
	strays  Usage
}

// member is the Scheduler's record of a domain.
type member struct {
	stat    Stat
	gen     uint64
	lease   Lease
	context bool
	work    bool // pending or in flight, as last told
	arrived Time // since when it waits at a closed gate
}

// NewScheduler returns a Scheduler without domains.
func NewScheduler(p Policy) *Scheduler {
	return &Scheduler{policy: p, members: make(map[ID]*member), next: Forever}
}

// Step takes in one event. Events of domains that are not attached are ignored,
// but for what they used, which is booked to nobody.
func (s *Scheduler) Step(now Time, e Event) {
	now = s.clock(now)
	if e.Kind == Attach {
		s.attach(now, e.Domain)
		return
	}
	m := s.members[e.Domain.ID]
	if m == nil {
		if e.Kind == Charge {
			s.strays = s.strays.Plus(sane(e.Used))
		}
		return
	}
	switch e.Kind {
	case Detach:
		s.detach(now, m)
	case Wake:
		s.wake(now, m, e)
	case Charge:
		u := sane(e.Used)
		m.stat.Used = m.stat.Used.Plus(u)
		s.policy.Charge(now, m.stat.Domain.ID, u)
	}
}

// Ready returns what the gates must do now, in this order. The slice is valid
// until the next call.
func (s *Scheduler) Ready(now Time) []Action {
	now = s.clock(now)
	for {
		d, ok, wakeAt := s.policy.Pick(now)
		if !ok {
			s.next = wakeAt
			break
		}
		s.decide(now, d)
	}
	out := s.actions
	s.actions = s.actions[:0]
	return out
}

// Next is when Ready must be called again if nothing happens before; Forever if
// that is not needed.
func (s *Scheduler) Next() Time { return s.next }

// Use replaces the policy. What the domains have used and what they were doing
// stays known; open gates close with the next Ready unless the new policy opens
// them too.
func (s *Scheduler) Use(now Time, p Policy) {
	now = s.clock(now)
	s.policy = p
	for _, m := range s.order {
		s.close(now, m)
		id := m.stat.Domain.ID
		p.Attach(now, m.stat.Domain)
		if m.context {
			p.Wake(now, id, ContextOpened)
		}
		if m.work {
			p.Wake(now, id, Arrived)
		}
	}
}

// Explain says in one line why the policy last decided as it did.
func (s *Scheduler) Explain() string {
	if e, ok := s.policy.(Explainer); ok {
		return e.Explain()
	}
	return ""
}

// Stat returns what is known about a domain.
func (s *Scheduler) Stat(id ID) (Stat, bool) {
	m := s.members[id]
	if m == nil {
		return Stat{}, false
	}
	return m.stat, true
}

// Stats appends what is known about every domain to dst, by ID.
func (s *Scheduler) Stats(dst []Stat) []Stat {
	for _, m := range s.order {
		dst = append(dst, m.stat)
	}
	return dst
}

// Strays is the time used by domains that had left when it was reported.
func (s *Scheduler) Strays() Usage { return s.strays }

// clock makes sure that a policy never sees time run backwards.
func (s *Scheduler) clock(now Time) Time {
	s.last = max(s.last, now)
	return s.last
}

func (s *Scheduler) attach(now Time, d Domain) {
	d.Credits = d.Credits.OrDefault()
	m := s.members[d.ID]
	if m == nil {
		m = &member{}
		s.members[d.ID] = m
		s.order = slices.Insert(s.order, s.index(d.ID), m)
	}
	m.stat.Domain = d
	s.policy.Attach(now, d)
}

func (s *Scheduler) detach(now Time, m *member) {
	id := m.stat.Domain.ID
	s.close(now, m)
	s.policy.Detach(now, id)
	delete(s.members, id)
	at := s.index(id)
	s.order = slices.Delete(s.order, at, at+1)
}

// index is where a domain is, or belongs, in order.
func (s *Scheduler) index(id ID) int {
	at, _ := slices.BinarySearchFunc(s.order, id, func(m *member, id ID) int {
		return int(int64(m.stat.Domain.ID) - int64(id))
	})
	return at
}

func (s *Scheduler) wake(now Time, m *member, e Event) {
	since := now
	if e.Since > 0 {
		since = min(since, e.Since)
	}
	switch e.Signal {
	case Arrived:
		m.work = true
		if m.stat.State == vcpu.Idle || m.stat.State == vcpu.Closing {
			m.arrived = since
			m.stat.State = m.stat.State.Move(vcpu.Waiting)
		}
	case Drained:
		m.work = false
		if m.stat.State == vcpu.Waiting || m.stat.State == vcpu.Closing {
			m.stat.State = m.stat.State.Move(vcpu.Idle)
		}
	case ContextOpened, ContextClosed:
		m.context = e.Signal == ContextOpened
	}
	s.policy.Wake(since, m.stat.Domain.ID, e.Signal)
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
		s.close(now, m)
	}
}

func (s *Scheduler) open(now Time, m *member, l Lease) {
	if m.stat.State != vcpu.Open {
		if m.work {
			m.stat.WaitMean += (now.Sub(m.arrived) - m.stat.WaitMean) / 8
		}
		m.stat.State = m.stat.State.Move(vcpu.Open)
		m.stat.Leases++
		m.gen++
	}
	m.lease = l
	s.actions = append(s.actions, Action{m.stat.Domain.ID, m.gen, true, l})
}

func (s *Scheduler) close(now Time, m *member) {
	if m.stat.State != vcpu.Open {
		return
	}
	m.stat.State = m.stat.State.Move(vcpu.Closing)
	m.arrived = now
	s.actions = append(s.actions, Action{Domain: m.stat.Domain.ID, Generation: m.gen})
}

// sane refuses nonsense from whoever measures: no negative time, none longer than
// an hour.
func sane(u Usage) Usage {
	return Usage{Compute: limit(u.Compute), Copy: limit(u.Copy), Idle: limit(u.Idle), Stalled: limit(u.Stalled)}
}

func limit(d time.Duration) time.Duration { return min(max(d, 0), time.Hour) }
