package sim

import (
	"time"

	"pegasus/policies"
	"pegasus/vcpu"
)

// loops are the daemon's scheduler loops, one for each accelerator.
type loops struct {
	*clock
	plan    *Plan
	hosts   []*host
	rung    []*host // loops that take a turn at this instant
	backend *backend
	follow  *following
	trace   *Trace // nil: none
}

// turns makes the loops that were rung take their turns.
func (l *loops) turns() {
	for i := 0; i < len(l.rung); i++ {
		l.rung[i].turn()
	}
	l.rung = l.rung[:0]
}

// observe passes the hypervisor's schedule to every scheduler.
func (l *loops) observe(cpus *processors) {
	for _, h := range l.hosts {
		if h.history != nil || h.sched.Observes() {
			h.step(&policies.Event{Kind: policies.Observe, Sample: cpus.sample(h.members)})
		}
	}
	l.after(cpuPeriod, sampled, 0, 0)
}

// host is the daemon's scheduler loop for one accelerator: it reads the gates, passes the events to the
// scheduler, and writes the decisions back.
type host struct {
	*loops
	index   int32
	gpu     *gpu
	sched   *policies.Scheduler
	all     []*domain // all domains of the accelerator, attached or not
	credits int       // of all of them
	members []*domain // attached
	dirty   []*domain // domains with events to report
	bounded []*domain // domains that may have a lease with an end
	rung    bool
	timer   Time // time of the scheduled turn
	holder  *domain

	charged   time.Duration
	decisions int
	history   *Recording
}

// ring makes the loop take a turn at this instant.
func (h *host) ring() {
	if !h.rung {
		h.rung = true
		h.loops.rung = append(h.loops.rung, h)
	}
}

// touch marks d as having events to report.
func (h *host) touch(d *domain) {
	if !d.reports.dirty && !d.presence.gone {
		d.reports.dirty = true
		h.dirty = append(h.dirty, d)
	}
}

// turn is one turn of the daemon's loop.
func (h *host) turn() {
	h.rung = false
	for _, d := range h.bounded {
		h.touch(d)
	}
	for _, d := range h.dirty {
		h.tellUse(d)
	}
	for _, d := range h.dirty {
		h.tellWork(d)
	}
	for _, d := range h.dirty {
		h.tellHeads(d)
		d.reports.dirty = false
	}
	h.dirty = h.dirty[:0]
	actions := h.ready()
	for i := range actions {
		h.apply(&actions[i])
	}
	if next := h.sched.Next(); next < h.timer {
		h.timer = max(next, h.now).Add(h.plan.Latency)
		h.at(h.timer, due, h.index, 0)
	}
}

// timeout is a turn at a scheduled time.
func (h *host) timeout() {
	if h.now < h.timer {
		return
	}
	h.timer = Forever
	if h.sched.Next() <= h.now {
		h.ring()
		return
	}
	if next := h.sched.Next(); next < Forever {
		h.timer = next.Add(h.plan.Latency)
		h.at(h.timer, due, h.index, 0)
	}
}

func (h *host) step(e *policies.Event) {
	if h.history != nil {
		h.history.step(h.now, *e)
	}
	if e.Kind == policies.Charge {
		h.charged += e.Used.Busy()
	}
	h.sched.Step(h.now, e)
}

func (h *host) ready() []policies.Action {
	actions := h.sched.Ready(h.now)
	if h.history != nil {
		h.history.ready(h.now, actions)
	}
	h.decisions += len(actions)
	return actions
}

// tellUse reports the time that a domain used since the last report.
func (h *host) tellUse(d *domain) {
	if d.gate.open {
		if !d.reports.busy {
			d.reports.idle.count(h.now)
		}
		open := h.now.Sub(max(d.reports.looked, d.gate.opened))
		used := &d.reports.used[policies.Compute].Used
		used.Idle = d.reports.idle.patience(min(d.reports.idle.sum, open), open)
		used.Stalled = max(open-used.Compute-d.reports.used[policies.Copy].Used.Copy-used.Idle, 0)
	}
	d.reports.idle.sum, d.reports.looked = 0, h.now
	for c := policies.Compute; c <= policies.Copy; c++ {
		if e := &d.reports.used[c]; !e.Used.Zero() {
			h.step(e)
			e.Used = vcpu.Usage{}
		}
	}
}

// patience returns the part of an idle time that is reported: programs that queue little run dry now and then
// although they are backlogged. As in the daemon.
func (t *idleTime) patience(idle, open time.Duration) time.Duration {
	const growth, most = 3, 100 * time.Millisecond
	t.patient = min(t.patient+open/growth, most)
	free := min(idle, t.patient)
	t.patient -= free
	return idle - free
}

// tellWork reports whether a domain has work.
func (h *host) tellWork(d *domain) {
	if h.plan.Copy != "" {
		h.tellClasses(d)
		return
	}
	if d.reports.reported == d.reports.since {
		return
	}
	d.reports.reported = d.reports.since
	e := policies.Event{Kind: policies.Wake, Domain: policies.Domain{ID: d.id}, Signal: policies.Drained, Since: d.reports.since}
	if d.reports.busy {
		e.Signal = policies.Arrived
	}
	h.step(&e)
}

// tellClasses reports for each class of engines whether a domain has work for it, where each class has an
// account of its own.
func (h *host) tellClasses(d *domain) {
	for c := policies.Compute; c <= policies.Copy; c++ {
		r := d.head(h.now)
		busy := d.poller.flying[c] > 0 || r != nil && r.class.Class() == c
		e := policies.Event{Kind: policies.Wake, Domain: policies.Domain{ID: d.id}, Class: c, Signal: policies.Drained}
		if busy {
			e.Signal = policies.Arrived
		}
		switch {
		case busy && !d.reports.worked[c] && d.reports.rested[c] > 0:
			pause := vcpu.Usage{Pauses: 1, Paused: h.now.Sub(d.reports.rested[c])}
			h.step(&policies.Event{Kind: policies.Charge, Domain: e.Domain, Class: c, Used: pause})
		case !busy && d.reports.worked[c]:
			d.reports.rested[c] = h.now
		}
		if busy || d.reports.worked[c] {
			h.step(&e)
		}
		d.reports.worked[c] = busy
	}
}

// head returns the request that waits at the gate, or nil.
func (d *domain) head(now Time) *request {
	if d.poller.ring.len() == 0 {
		return nil
	}
	r := d.poller.ring.at(0)
	if r == d.poller.serving || d.gate.lease(now, r.class) != nil {
		return nil
	}
	return r
}

// tellHeads reports the request that waits at the gate.
func (h *host) tellHeads(d *domain) {
	waits := d.head(h.now)
	for c := policies.Compute; c <= policies.Copy; c++ {
		var r *request
		var seq uint64
		if waits != nil && waits.class.Class() == c {
			r, seq = waits, waits.seq
		}
		if seq == d.reports.heads[c] { // the same number means the same request
			continue
		}
		d.reports.heads[c] = seq
		e := policies.Event{Kind: policies.Head, Domain: policies.Domain{ID: d.id}, Class: c}
		if r != nil {
			e.Request = r.view()
		}
		h.step(&e)
	}
}

// view returns the scheduler's view of a request.
func (r *request) view() policies.Request {
	return policies.Request{Seq: r.seq, Predicted: r.cost, Known: true, Key: uint64(r.class)<<56 | uint64(r.cost), Release: r.thread.began}
}

// apply writes a decision to the gate. The gate closes at once, and opens after the time for handing over.
func (h *host) apply(a *policies.Action) {
	d := h.domain(a.Domain)
	if d == nil {
		return
	}
	h.follow.window(d, a)
	c := a.Lease.Class
	d.gate.coming[c].gen++
	if !a.Open {
		h.shut(d, c)
		return
	}
	var wait time.Duration
	if a.Lease.Kind != policies.Window {
		wait = h.plan.Cost
	}
	if h.holder != d && !d.gate.leases[c].open {
		wait += h.plan.HandOver
	}
	h.holder = d
	if wait == 0 {
		h.grant(d, a.Lease)
		return
	}
	d.gate.coming[c].lease = a.Lease
	h.after(wait, granted, d.index<<2|int32(c), d.gate.coming[c].gen)
}

// left detaches a domain that is gone, once none of its requests is in flight.
func (h *host) left(d *domain) {
	h.tellUse(d)
	if d.poller.inFlight > 0 || !d.presence.here {
		return
	}
	d.presence.here = false
	h.step(&policies.Event{Kind: policies.Detach, Domain: policies.Domain{ID: d.id}})
	if d.presence.returns {
		h.after(d.spec.Away, appeared, d.index, 0)
	}
	h.ring()
}

func (h *host) domain(id vcpu.ID) *domain {
	d := h.all[id-1]
	if d.presence.gone {
		return nil
	}
	return d
}

// grant opens a gate.
func (h *host) grant(d *domain, l policies.Lease) {
	was := d.gate.open
	out := &d.gate.leases[l.Class]
	out.Lease, out.open = l, true
	h.mark(d)
	if !was {
		d.gate.opened, d.reports.idle.to = h.now, h.now
	}
	if d.gate.bounded {
		h.bind(d)
	}
	h.trace.gate(h.now, d, l.Class, true)
	h.backend.poll(d)
	h.backend.idleness(d)
}

// shut closes a gate. A request that waits there is reported at once, because the daemon reads the gate page
// again after closing the gate.
func (h *host) shut(d *domain, c policies.Class) {
	d.gate.leases[c].open = false
	if d.poller.ring.len() > 0 {
		h.touch(d)
		h.ring()
	}
	if was := d.gate.open; was {
		if h.mark(d); !d.gate.open && !d.reports.busy {
			d.reports.idle.count(h.now)
		}
	}
	h.trace.gate(h.now, d, c, false)
}

// mark updates open and bounded from the gate's leases.
func (h *host) mark(d *domain) {
	if d.gate.mark(); !d.gate.bounded {
		h.loose(d)
	}
}

func (h *host) bind(d *domain) {
	for _, o := range h.bounded {
		if o == d {
			return
		}
	}
	h.bounded = append(h.bounded, d)
}

func (h *host) loose(d *domain) {
	for i, o := range h.bounded {
		if o == d {
			h.bounded = append(h.bounded[:i], h.bounded[i+1:]...)
			return
		}
	}
}
