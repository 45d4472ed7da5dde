package sim

import (
	"time"

	"pegasus/policies"
	"pegasus/vcpu"
)

// domain is a domain with its threads, its ring of calls, the backend's poller that empties the ring, and its
// gate.
type domain struct {
	index    int32
	id       vcpu.ID
	name     string
	spec     *Domain
	host     *host
	seat     int // among the accelerator's domains
	threads  []*thread
	chance   *stream
	object   *object // its memory on the device, if it has any
	presence presence
	cpu      cpuShare
	poller   poller
	gate     gate
	reports  reports

	record
}

// presence is whether a domain takes part at present.
type presence struct {
	gone    bool
	here    bool // attached to its scheduler
	returns bool // it will return after it has left
	failed  bool // its memory allocation failed
}

// cpuShare is a domain's weight on the CPUs, and its use of them.
type cpuShare struct {
	credits vcpu.Credits
	weight  int64 // its credits, except while the CPUs follow the accelerators
	follows Time  // end of its window for that, as last reported
	used    time.Duration
}

// gate is a domain's gate page.
type gate struct {
	leases  [3]lease // by policies.Class
	coming  [3]coming
	open    bool // one of them is in force
	bounded bool // a lease with an end is in force
	opened  Time
}

// reports are a domain's reports to its scheduler, sent and pending.
type reports struct {
	used     [3]policies.Event // Charges, by policies.Class
	worked   [3]bool
	rested   [3]Time // since when a class has no work; 0: it never had any
	busy     bool
	since    Time      // of the current state, busy or not
	reported Time      // the last since reported to the scheduler
	heads    [3]uint64 // numbers of the requests at the gate
	dirty    bool
	looked   Time
	idle     idleTime
}

// idleTime is the time that a gate was open without work.
type idleTime struct {
	sum     time.Duration // since the last report
	to      Time          // end of the counted time
	patient time.Duration // not to be reported
}

// count adds the time since the last call.
func (t *idleTime) count(now Time) {
	t.sum += now.Sub(t.to)
	t.to = now
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
func (g *gate) lease(now Time, c vcpu.Engine) *lease {
	for _, l := range [2]*lease{&g.leases[policies.AnyClass], &g.leases[c.Class()]} {
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
		return !d.gate.leases[policies.AnyClass].stands(now) && !d.gate.leases[c].stands(now) || r.lease.Amount <= 0 && d.poller.flying[c] == 0
	case policies.Budget:
		return r.lease.Amount <= 0
	}
	return false
}

// stands reports whether the gate is open under the lease, which may be used up.
func (l *lease) stands(now Time) bool { return l.open && now < l.Until }

// started is called at every start on an engine.
func (d *domain) started(now Time, r *request) {
	d.waits.add(now.Sub(r.asked))
}

// work returns the work per second of a run of that length.
func (d *domain) work(took time.Duration) float64 {
	return d.threads[0].program.work / max(took.Seconds(), 1e-9)
}

// mark updates open and bounded from the leases.
func (g *gate) mark() {
	g.open, g.bounded = false, false
	for i := range g.leases {
		if l := &g.leases[i]; l.open {
			g.open = true
			g.bounded = g.bounded || l.Until != Forever || l.Kind != policies.Window
		}
	}
}
