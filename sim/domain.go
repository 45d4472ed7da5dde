package sim

import (
	"time"

	"pegasus/policies"
	"pegasus/vcpu"
)

// domain is a domain with its threads, its ring of calls, the backend's poller that empties the ring, and its
// gate.
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
	returns bool    // it will return after it has left
	failed  bool    // its memory allocation failed
	object  *object // its memory on the device, if it has any

	cpuCredits vcpu.Credits
	weight     int64 // its cpuCredits, except while the CPUs follow the accelerators
	follows    Time  // end of its window for that, as last reported
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
	open    bool // one of them is in force
	bounded bool // a lease with an end is in force
	opened  Time

	// Reports to the scheduler, sent and pending.
	used    [3]policies.Event // Charges, by policies.Class
	flying  [3]int            // requests in flight now, by policies.Class
	worked  [3]bool
	rested  [3]Time // since when a class has no work; 0: it never had any
	busy    bool
	since   Time      // of the current state, busy or not
	told    Time      // the last since reported to the scheduler
	heads   [3]uint64 // numbers of the requests at the gate
	dirty   bool
	looked  Time
	idle    time.Duration // time that the gate was open without work, since the last report
	idleTo  Time          // end of the counted idle time
	patient time.Duration

	record
}

// lease is the gate page's entry of a class.
type lease struct {
	policies.Lease
	open bool
}

// coming is a lease that takes effect after a delay.
type coming struct {
	lease policies.Lease
	gen   uint32
}

// lease returns the lease under which a request may be submitted now, or nil.
func (d *domain) lease(now Time, c vcpu.Engine) *lease {
	for _, l := range [2]*lease{&d.leases[policies.AnyClass], &d.leases[c.Class()]} {
		if l.stands(now) && (l.Kind == policies.Window || l.Amount > 0) {
			return l
		}
	}
	return nil
}

// take takes the need of r off the lease.
func (l *lease) take(r *request) {
	r.lease, r.kind = l, l.Kind
	switch l.Kind {
	case policies.Requests:
		l.Amount--
	case policies.Budget:
		l.Amount -= int64(r.cost)
	}
}

// spent reports whether the end of r is reported at once, because r was the last request of its lease, as in
// the daemon (gate.Member.Finish).
func (d *domain) spent(now Time, r *request) bool {
	c := r.class.Class()
	switch r.kind {
	case policies.Requests:
		return !d.leases[policies.AnyClass].stands(now) && !d.leases[c].stands(now) || r.lease.Amount <= 0 && d.flying[c] == 0
	case policies.Budget:
		return r.lease.Amount <= 0
	}
	return false
}

// stands reports whether the gate is open under the lease, which may be used up.
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

// poll takes calls out of the ring as far as the gate allows. For a call that the gate holds back, the
// doorbell rings.
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
			if d.heads[r.class.Class()] != r.seq {
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
		if d.heads[r.class.Class()] != 0 {
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

// decoded ends the poller's work on a call.
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
	d.flying[r.class.Class()]++
	s.enqueue(d.host.gpu, r)
}

// idleness records whether the domain has work pending or in flight.
func (d *domain) idleness(s *Sim) {
	busy := d.ring.len() > 0 || d.serving != nil || d.inFlight > 0
	if busy == d.busy || d.gone {
		return
	}
	if busy && d.open {
		d.idle += s.now.Sub(d.idleTo)
	}
	if busy && d.since > 0 && s.plan.Copy == "" { // with a copy policy each class has its own
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

// started is called at every start on an engine.
func (d *domain) started(now Time, r *request) {
	d.waits.add(now.Sub(r.asked))
}

// work returns the work per second of a run of that length.
func (d *domain) work(took time.Duration) float64 {
	return d.threads[0].program.work / max(took.Seconds(), 1e-9)
}

// ran is called at the end of every run.
func (d *domain) ran(s *Sim, t *thread) {
	d.runs = append(d.runs, run{t.began, s.now})
	if !d.spec.Background {
		s.missing--
	}
	if d.spec.Runs > 0 && len(d.runs) == d.spec.Runs {
		s.agenda.add(s.now, vanished, d.index, 0)
	}
}
