package sim

import (
	"time"

	"pegasus/policies"
	"pegasus/vcpu"
)

// host is the daemon's scheduler loop for one accelerator: it reads the gates, passes the events to the
// scheduler, and writes the decisions back.
type host struct {
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
func (s *Sim) ring(h *host) {
	if !h.rung {
		h.rung = true
		s.rung = append(s.rung, h)
	}
}

// touch marks d as having events to report.
func (h *host) touch(d *domain) {
	if !d.dirty && !d.gone {
		d.dirty = true
		h.dirty = append(h.dirty, d)
	}
}

// turn is one turn of the daemon's loop.
func (s *Sim) turn(h *host) {
	h.rung = false
	for _, d := range h.bounded {
		h.touch(d)
	}
	for _, d := range h.dirty {
		s.tellUse(h, d)
	}
	for _, d := range h.dirty {
		s.tellWork(h, d)
	}
	for _, d := range h.dirty {
		s.tellHeads(h, d)
		d.dirty = false
	}
	h.dirty = h.dirty[:0]
	actions := s.ready(h)
	for i := range actions {
		s.apply(h, &actions[i])
	}
	if next := h.sched.Next(); next < h.timer {
		h.timer = max(next, s.now).Add(s.plan.Latency)
		s.agenda.add(h.timer, due, h.index, 0)
	}
}

// timeout is a turn at a scheduled time.
func (s *Sim) timeout(h *host) {
	if s.now < h.timer {
		return
	}
	h.timer = Forever
	if h.sched.Next() <= s.now {
		s.ring(h)
		return
	}
	if next := h.sched.Next(); next < Forever {
		h.timer = next.Add(s.plan.Latency)
		s.agenda.add(h.timer, due, h.index, 0)
	}
}

func (s *Sim) step(h *host, e *policies.Event) {
	if h.history != nil {
		h.history.step(s.now, *e)
	}
	if e.Kind == policies.Charge {
		h.charged += e.Used.Busy()
	}
	h.sched.Step(s.now, e)
}

func (s *Sim) ready(h *host) []policies.Action {
	actions := h.sched.Ready(s.now)
	if h.history != nil {
		h.history.ready(s.now, actions)
	}
	h.decisions += len(actions)
	return actions
}

// tellUse reports the time that a domain used since the last report.
func (s *Sim) tellUse(h *host, d *domain) {
	if d.open {
		if !d.busy {
			d.idle += s.now.Sub(d.idleTo)
			d.idleTo = s.now
		}
		open := s.now.Sub(max(d.looked, d.opened))
		used := &d.used[policies.Compute].Used
		used.Idle = d.patience(min(d.idle, open), open)
		used.Stalled = max(open-used.Compute-d.used[policies.Copy].Used.Copy-used.Idle, 0)
	}
	d.idle, d.looked = 0, s.now
	for c := policies.Compute; c <= policies.Copy; c++ {
		if e := &d.used[c]; !e.Used.Zero() {
			s.step(h, e)
			e.Used = vcpu.Usage{}
		}
	}
}

// patience returns the part of an idle time that is reported: programs that queue little run dry now and then
// although they are backlogged. As in the daemon.
func (d *domain) patience(idle, open time.Duration) time.Duration {
	const growth, most = 3, 100 * time.Millisecond
	d.patient = min(d.patient+open/growth, most)
	free := min(idle, d.patient)
	d.patient -= free
	return idle - free
}

// tellWork reports whether a domain has work.
func (s *Sim) tellWork(h *host, d *domain) {
	if s.plan.Copy != "" {
		s.tellClasses(h, d)
		return
	}
	if d.told == d.since {
		return
	}
	d.told = d.since
	e := policies.Event{Kind: policies.Wake, Domain: policies.Domain{ID: d.id}, Signal: policies.Drained, Since: d.since}
	if d.busy {
		e.Signal = policies.Arrived
	}
	s.step(h, &e)
}

// tellClasses reports for each class of engines whether a domain has work for it, where each class has an
// account of its own.
func (s *Sim) tellClasses(h *host, d *domain) {
	for c := policies.Compute; c <= policies.Copy; c++ {
		r := d.head(s.now)
		busy := d.flying[c] > 0 || r != nil && r.class.Class() == c
		e := policies.Event{Kind: policies.Wake, Domain: policies.Domain{ID: d.id}, Class: c, Signal: policies.Drained}
		if busy {
			e.Signal = policies.Arrived
		}
		switch {
		case busy && !d.worked[c] && d.rested[c] > 0:
			pause := vcpu.Usage{Pauses: 1, Paused: s.now.Sub(d.rested[c])}
			s.step(h, &policies.Event{Kind: policies.Charge, Domain: e.Domain, Class: c, Used: pause})
		case !busy && d.worked[c]:
			d.rested[c] = s.now
		}
		if busy || d.worked[c] {
			s.step(h, &e)
		}
		d.worked[c] = busy
	}
}

// head returns the request that waits at the gate, or nil.
func (d *domain) head(now Time) *request {
	if d.ring.len() == 0 {
		return nil
	}
	r := d.ring.at(0)
	if r == d.serving || d.lease(now, r.class) != nil {
		return nil
	}
	return r
}

// tellHeads reports the request that waits at the gate.
func (s *Sim) tellHeads(h *host, d *domain) {
	waits := d.head(s.now)
	for c := policies.Compute; c <= policies.Copy; c++ {
		var r *request
		var seq uint64
		if waits != nil && waits.class.Class() == c {
			r, seq = waits, waits.seq
		}
		if seq == d.heads[c] { // the same number means the same request
			continue
		}
		d.heads[c] = seq
		e := policies.Event{Kind: policies.Head, Domain: policies.Domain{ID: d.id}, Class: c}
		if r != nil {
			e.Request = r.told()
		}
		s.step(h, &e)
	}
}

// told returns the scheduler's view of a request.
func (r *request) told() policies.Request {
	return policies.Request{Seq: r.seq, Predicted: r.cost, Known: true, Key: uint64(r.class)<<56 | uint64(r.cost), Release: r.thread.began}
}

// apply writes a decision to the gate. The gate closes at once, and opens after the time for handing over.
func (s *Sim) apply(h *host, a *policies.Action) {
	d := h.domain(a.Domain)
	if d == nil {
		return
	}
	s.window(d, a)
	c := a.Lease.Class
	d.coming[c].gen++
	if !a.Open {
		s.shut(d, c)
		return
	}
	var wait time.Duration
	if a.Lease.Kind != policies.Window {
		wait = s.plan.Cost
	}
	if h.holder != d && !d.leases[c].open {
		wait += s.plan.HandOver
	}
	h.holder = d
	if wait == 0 {
		s.grant(d, a.Lease)
		return
	}
	d.coming[c].lease = a.Lease
	s.agenda.add(s.now.Add(wait), granted, d.index<<2|int32(c), d.coming[c].gen)
}

func (h *host) domain(id vcpu.ID) *domain {
	d := h.all[id-1]
	if d.gone {
		return nil
	}
	return d
}

// grant opens a gate.
func (s *Sim) grant(d *domain, l policies.Lease) {
	was := d.open
	out := &d.leases[l.Class]
	out.Lease, out.open = l, true
	d.mark()
	if !was {
		d.opened, d.idleTo = s.now, s.now
	}
	if d.bounded {
		d.host.bind(d)
	}
	s.traceGate(d, l.Class, true)
	s.poll(d)
	d.idleness(s)
}

// shut closes a gate. A request that waits there is reported at once, because the daemon reads the gate page
// again after closing the gate.
func (s *Sim) shut(d *domain, c policies.Class) {
	d.leases[c].open = false
	if d.ring.len() > 0 {
		d.host.touch(d)
		s.ring(d.host)
	}
	if was := d.open; was {
		if d.mark(); !d.open && !d.busy {
			d.idle += s.now.Sub(d.idleTo)
			d.idleTo = s.now
		}
	}
	s.traceGate(d, c, false)
}

// mark updates open and bounded from the gate's leases.
func (d *domain) mark() {
	d.open, d.bounded = false, false
	for i := range d.leases {
		if l := &d.leases[i]; l.open {
			d.open = true
			d.bounded = d.bounded || l.Until != Forever || l.Kind != policies.Window
		}
	}
	if !d.bounded {
		d.host.loose(d)
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
