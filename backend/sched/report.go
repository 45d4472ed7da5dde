package sched

import (
	"math"
	"time"

	"pegasus/backend/gate"
	"pegasus/configs"
	"pegasus/policies"
	"pegasus/vcpu"
)

// feed passes events to the policy. The accelerator's mu is held during every call.
type feed struct{ sched *policies.Scheduler }

// sampleGate reports to the scheduler the domain's use and work since the last sample. a.mu is held.
func (a *Accelerator) sampleGate(now int64, m *Attachment) { a.report(now, m, a.chargeUse(now, m)) }

// chargeUse charges a domain for its use since the last sample and returns its workers' current work. All domains are
// charged before any new work is reported to the scheduler: use in a period in which no other domain had work costs no
// other domain anything.
func (a *Accelerator) chargeUse(now int64, m *Attachment) gate.Work {
	w := m.Page.Look()
	if m.paused {
		w = stopped(w)
	}
	// Read after the page, so that all use of a domain that looks idle is charged: workers release engines before they
	// end requests.
	held := m.account.Charge(burst(a.settings))
	used := vcpu.Usage{Compute: time.Duration(held.Compute), Copy: time.Duration(held.Copies())}
	m.Page.Ran(used.Compute > 0, used.Copy > 0)
	if m.leases != 0 {
		open := time.Duration(max(now-max(m.sampledAt, m.opened), 0))
		used.Stalled = max(open-used.Busy(), 0)
		m.turns.add(open, used.Busy())
		if m.turns.wasted() && a.members.keepsOut(m) {
			used.Compute += used.Stalled // no policy waives it
			used.Stalled = 0
		}
	}
	if a.settings.Accounts != "mrq" {
		used.Pauses, used.Paused = count(w.Pauses), time.Duration(w.Paused)
	}
	m.sampledAt = now
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
func (a *Accelerator) report(now int64, m *Attachment, w gate.Work) {
	if a.settings.Accounts == "mrq" {
		a.classes(now, m, w)
	} else {
		a.signal(now, m, w)
	}
	for c, h := range w.Heads {
		if h != m.heads[c] || m.again && h.Seq != 0 {
			m.heads[c] = h
			a.step(now, policies.Event{Kind: policies.Head, Domain: policies.Domain{ID: m.ID}, Class: policyClass[c],
				Request: requestOf(gate.Class(c), h)})
		}
	}
	m.again = false
	a.withdraw(now, m, w)
	if m.leases != 0 && w.Busy() {
		m.Page.Watch()
	}
}

// keepsOut reports whether a domain with a turn blocks another domain that has work.
func (l members) keepsOut(m *Attachment) bool {
	for _, other := range l {
		if other != m && other.busy && other.leases == 0 && !other.paused {
			return true
		}
	}
	return false
}

// leastBurst is the shortest bound on one hold of an engine, whatever the kernel timeout.
const leastBurst = time.Minute

// burst returns the longest time for which a domain may hold an engine before it is charged.
func burst(c configs.Accelerator) time.Duration { return 2 * max(c.KernelTimeout, leastBurst) }

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

// signal reports to the scheduler whether a domain has work.
func (f feed) signal(now int64, m *Attachment, w gate.Work) {
	switch {
	case w.Busy():
		f.wake(now, 0, m, policies.Arrived)
		m.drained = 0
	case m.drained == 0 || w.IdleSince > m.drained:
		m.drained = max(w.IdleSince, 1)
		f.wake(now, w.IdleSince, m, policies.Drained)
	}
}

// classes reports to the scheduler, for each engine class, whether a domain has work for it.
func (f feed) classes(now int64, m *Attachment, w gate.Work) {
	for c := range gate.NumClasses {
		busy := w.Flying[c] > 0 || w.Heads[c].Seq != 0
		e := policies.Event{Kind: policies.Wake, Domain: policies.Domain{ID: m.ID}, Class: policyClass[c], Signal: policies.Drained}
		if busy {
			e.Signal = policies.Arrived
		}
		switch {
		case busy && !m.worked[c] && m.rested[c] > 0:
			pause := vcpu.Usage{Pauses: 1, Paused: time.Duration(now - m.rested[c])}
			f.step(now, policies.Event{Kind: policies.Charge, Domain: e.Domain, Class: e.Class, Used: pause})
		case !busy && m.worked[c]:
			m.rested[c] = now
		}
		if busy || m.worked[c] {
			f.step(now, e)
		}
		m.worked[c] = busy
	}
}

// policyClass maps a gate's class to the policy's.
var policyClass = [gate.NumClasses]policies.Class{gate.Compute: policies.Compute, gate.Copy: policies.Copy}

// charge passes to the scheduler the time that a domain used, each class separately.
func (f feed) charge(now int64, m *Attachment, u vcpu.Usage, ended [gate.NumClasses]uint64) {
	e := policies.Event{Kind: policies.Charge, Domain: policies.Domain{ID: m.ID}, Class: policies.Compute}
	e.Used = vcpu.Usage{Compute: u.Compute, Idle: u.Idle, Stalled: u.Stalled, Requests: count(ended[gate.Compute]), Pauses: u.Pauses, Paused: u.Paused}
	if e.Used != (vcpu.Usage{}) {
		f.step(now, e)
	}
	e.Class, e.Used = policies.Copy, vcpu.Usage{Copy: u.Copy, Requests: count(ended[gate.Copy])}
	if e.Used != (vcpu.Usage{}) {
		f.step(now, e)
	}
}

// count converts a worker-supplied request count, bounding it to 2^20.
func count(n uint64) int { return int(min(n, 1<<20)) }

// turns tracks how long a domain recently had the turn, and for how much of that time it held engines. A busy host
// wakes a program or its worker late, so a domain that queues little leaves parts of its turns unused, which is its own
// loss. A domain that blocks others and hardly uses its turns is charged for them, since no other domain could use
// them. A worker that hostile code has taken over may report any use of such time.
type turns struct{ had, used float64 } // ns

const (
	// turnsHalf is the turn time after which the weight of earlier turns has halved.
	turnsHalf = float64(time.Second)
	// turnsPart is the reciprocal of the least share of its turns that a domain uses: less than an honest domain uses
	// on a host with busy processors.
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

func (f feed) step(now int64, e policies.Event) { f.sched.Step(vcpu.Time(now), &e) }

// wake passes a domain's signal to the scheduler, with the time since when it holds, or 0 if that is unknown.
func (f feed) wake(now, since int64, m *Attachment, s policies.Signal) {
	f.step(now, policies.Event{Kind: policies.Wake, Domain: policies.Domain{ID: m.ID}, Signal: s, Since: vcpu.Time(since)})
}
