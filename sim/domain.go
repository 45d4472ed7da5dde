package sim

import (
	"time"

	"pegasus/policies"
	"pegasus/vcpu"
)

// domain is a domain with its threads, its ring of calls, the backend's poller that
// empties it, and its gate.
type domain struct {
	index   int32
	id      vcpu.ID
	name    string
	spec    *Domain
	host    *host
	seat    int // among the accelerator's domains
	threads []*thread
	chance  *stream
	gone    bool
	here    bool    // attached to its scheduler
	returns bool    // it is to come back after it has left
	failed  bool    // there was no memory for it
	object  *object // its memory on the device, if it has any

	cpuCredits vcpu.Credits
	weight     int64 // its cpuCredits, but for moments where the CPUs follow the accelerators
	follows    Time  // until when they do, as was told
	cpuTime    time.Duration

	// The backend.
	ring     ring[*request]
	serving  *request // the call that the poller is decoding
	replies  ring[*request]
	inFlight int
	depth    int
	seq      uint64

	// The gate.
	leases  [3]lease // by policies.Class
	coming  [3]coming
	open    bool // one of them is
	bounded bool // a lease is out that ends
	opened  Time

	// What the scheduler was told, and will be.
	used    [3]policies.Event // Charges, by policies.Class
	flying  [3]int            // requests now, likewise
	worked  [3]bool
	rested  [3]Time // since when a class has no work; 0: it never had
	busy    bool
	since   Time      // busy or not
	told    Time      // the since that the scheduler knows
	heads   [3]uint64 // numbers of the requests at the gate
	dirty   bool
	looked  Time
	idle    time.Duration // the gate was open without work, since the last look
	idleTo  Time          // up to which idle is counted
	patient time.Duration

	record
}

// lease is what the gate page says about a class.
type lease struct {
	policies.Lease
	open bool
}

// coming is a lease that takes effect a little later.
type coming struct {
	lease policies.Lease
	gen   uint32
}

// classOf is the class that policies know.
func classOf(c engineClass) policies.Class {
	if c == compute {
		return policies.Compute
	}
	return policies.Copy
}

// lease returns the lease under which a request may be submitted now, or nil.
func (d *domain) lease(now Time, c engineClass) *lease {
	for _, l := range [2]*lease{&d.leases[policies.AnyClass], &d.leases[classOf(c)]} {
		if l.stands(now) && (l.Kind == policies.Window || l.Amount > 0) {
			return l
		}
	}
	return nil
}

// take uses up what r needs of the lease.
func (l *lease) take(r *request) {
	r.lease, r.kind = l, l.Kind
	switch l.Kind {
	case policies.Requests:
		l.Amount--
	case policies.Budget:
		l.Amount -= int64(r.cost)
	}
}

// spent says whether the end of r is told at once, since it was the last of what was
// lent. As the daemon has it (gate.Member.Finish).
func (d *domain) spent(now Time, r *request) bool {
	c := classOf(r.class)
	switch r.kind {
	case policies.Requests:
		return !d.leases[policies.AnyClass].stands(now) && !d.leases[c].stands(now) || r.lease.Amount <= 0 && d.flying[c] == 0
	case policies.Budget:
		return r.lease.Amount <= 0
	}
	return false
}

// stands says whether the gate is open under the lease; it may be used up.
func (l *lease) stands(now Time) bool { return l.open && now < l.Until }

// issue puts a request into the domain's ring.
func (s *Sim) issue(t *thread, st *step) {
	d := t.domain
	var r *request
	if n := len(s.free); n > 0 {
		r, s.free = s.free[n-1], s.free[:n-1]
	} else {
		r = &request{}
	}
	d.seq++
	*r = request{thread: t, class: st.class, cost: st.d, asked: s.now, seq: d.seq}
	d.ring.push(r)
	s.poll(d)
	d.idleness(s)
}

// poll lets the backend take calls out of the ring as far as the gate allows. Those
// that it doesn't let through knock.
func (s *Sim) poll(d *domain) {
	for d.ring.len() > 0 && d.serving == nil {
		r := d.ring.at(0)
		if s.profile.Early && !r.decoded && r.thread.program.call > 0 {
			d.serving = r
			s.agenda.add(s.now.Add(r.thread.program.call), served, d.index, 0)
			return
		}
		l := d.lease(s.now, r.class)
		if l == nil {
			if d.heads[classOf(r.class)] != r.seq {
				d.host.touch(d)
				s.ring(d.host)
			}
			return
		}
		if d.inFlight >= d.depth {
			return
		}
		l.take(r)
		d.ring.pop()
		if d.heads[classOf(r.class)] != 0 {
			d.host.touch(d)
		}
		if c := r.thread.program.call; c > 0 && !r.decoded {
			d.serving = r
			s.agenda.add(s.now.Add(c), served, d.index, 0)
			return
		}
		s.submit(d, r)
	}
}

// decoded is the end of the poller's work on a call.
func (s *Sim) decoded(d *domain) {
	r := d.serving
	d.serving = nil
	if r.decoded = true; !s.profile.Early {
		s.submit(d, r)
	}
	s.poll(d)
}

func (s *Sim) submit(d *domain, r *request) {
	if d.gone {
		return
	}
	d.inFlight++
	d.flying[classOf(r.class)]++
	s.enqueue(d.host.gpu, r)
}

// idleness notes whether the domain has work pending or in flight.
func (d *domain) idleness(s *Sim) {
	busy := d.ring.len() > 0 || d.serving != nil || d.inFlight > 0
	if busy == d.busy || d.gone {
		return
	}
	if busy && d.open {
		d.idle += s.now.Sub(d.idleTo)
	}
	if busy && d.since > 0 && s.plan.Copy == "" { // otherwise each class has its own
		used := &d.used[policies.Compute].Used
		used.Pauses++
		used.Paused += s.now.Sub(d.since)
	}
	d.busy, d.since, d.idleTo = busy, s.now, s.now
	d.host.touch(d)
	if !busy || !d.open {
		s.ring(d.host)
	}
}

// started is told of every start on an engine.
func (d *domain) started(now Time, r *request) {
	d.waits.add(now.Sub(r.asked))
}

// work is what a run that took so long does per second.
func (d *domain) work(took time.Duration) float64 {
	return d.threads[0].program.work / max(took.Seconds(), 1e-9)
}

// ran is told of every run that ended.
func (d *domain) ran(s *Sim, t *thread) {
	d.runs = append(d.runs, run{t.began, s.now})
	if !d.spec.Background {
		s.missing--
	}
	if d.spec.Runs > 0 && len(d.runs) == d.spec.Runs {
		s.agenda.add(s.now, vanished, d.index, 0)
	}
}
