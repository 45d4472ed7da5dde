package sim

import "pegasus/policies"

// backend is the daemon's workers: it takes the calls out of the domains' rings and submits them while the gates are
// open.
type backend struct {
	*clock
	early   bool // calls are decoded before the gate
	classes bool // each class of engines has a policy of its own
	guests  *guests
	devices *accelerators
	free    []*request
}

// poller is the backend's state for one domain.
type poller struct {
	ring     ring[*request]
	serving  *request // the call that is decoded
	replies  ring[*request]
	inFlight int
	flying   [3]int // the same by policies.Class
	depth    int
	seq      uint64
}

// issue puts a request into the domain's ring.
func (b *backend) issue(t *thread, st *step) {
	d := t.domain
	var r *request
	if n := len(b.free); n > 0 {
		r, b.free = b.free[n-1], b.free[:n-1]
	} else {
		r = &request{}
	}
	d.poller.seq++
	*r = request{thread: t, class: st.class, cost: st.d, asked: b.now, seq: d.poller.seq}
	d.poller.ring.push(r)
	b.poll(d)
	b.idleness(d)
}

// poll takes calls out of the ring as far as the gate allows. For a call that the gate holds back, the
// doorbell rings.
func (b *backend) poll(d *domain) {
	for d.poller.ring.len() > 0 && d.poller.serving == nil {
		r := d.poller.ring.at(0)
		if b.early && !r.decoded && r.thread.program.call > 0 {
			d.poller.serving = r
			b.after(r.thread.program.call, served, d.index, 0)
			return
		}
		l := d.gate.lease(b.now, r.class)
		if l == nil {
			if d.reports.heads[r.class.Class()] != r.seq {
				d.host.touch(d)
				d.host.ring()
			}
			return
		}
		if d.poller.inFlight >= d.poller.depth {
			return
		}
		l.take(r)
		d.poller.ring.pop()
		if d.reports.heads[r.class.Class()] != 0 {
			d.host.touch(d)
		}
		if c := r.thread.program.call; c > 0 && !r.decoded {
			d.poller.serving = r
			b.after(c, served, d.index, 0)
			return
		}
		b.submit(d, r)
	}
}

// decoded ends the poller's work on a call.
func (b *backend) decoded(d *domain) {
	r := d.poller.serving
	d.poller.serving = nil
	if r.decoded = true; !b.early {
		b.submit(d, r)
	}
	b.poll(d)
}

func (b *backend) submit(d *domain, r *request) {
	if d.presence.gone {
		return
	}
	d.poller.inFlight++
	d.poller.flying[r.class.Class()]++
	b.devices.enqueue(d.host.gpu, r)
}

// idleness records whether the domain has work pending or in flight.
func (b *backend) idleness(d *domain) {
	busy := d.poller.ring.len() > 0 || d.poller.serving != nil || d.poller.inFlight > 0
	if busy == d.reports.busy || d.presence.gone {
		return
	}
	if busy && d.gate.open {
		d.reports.idle.sum += b.now.Sub(d.reports.idle.to)
	}
	if busy && d.reports.since > 0 && !b.classes { // with a copy policy each class has its own
		used := &d.reports.used[policies.Compute].Used
		used.Pauses++
		used.Paused += b.now.Sub(d.reports.since)
	}
	d.reports.busy, d.reports.since, d.reports.idle.to = busy, b.now, b.now
	d.host.touch(d)
	if !busy || !d.gate.open {
		d.host.ring()
	}
}

// answered reports a request's end to the program.
func (b *backend) answered(d *domain, r *request) {
	d.calls.add(b.now.Sub(r.asked))
	t := r.thread
	b.free = append(b.free, r)
	b.guests.reply(t)
	b.poll(d)
	b.idleness(d)
}
