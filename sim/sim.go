package sim

import (
	"fmt"
	"time"

	"pegasus/policies"
	"pegasus/vcpu"
)

// Forever is later than anything that happens.
const Forever = vcpu.Forever

// Sim is one run: one scenario, one plan, one seed. It consists of the models of the parts of a machine, which call
// one another and share the clock: guests run programs and pass calls to the backend, which submits requests to the
// accelerators while the scheduler loops have the gates open.
type Sim struct {
	*clock
	plan    *Plan
	domains []*domain
	guests  *guests
	cpus    *processors
	follow  *following
	backend *backend
	devices *accelerators
	loops   *loops

	ahead time.Duration // LAG's greatest lead, if the plan sets it
}

// Run advances time to the scenario's end, for one part after the other, because the small state of a part
// stays in the processor's caches. It returns an error if engine time was not charged.
func (s *Sim) Run() error {
	var end Time
	for _, part := range s.parts() {
		s.agenda, s.now = part, 0
		for s.next() {
		}
		end = max(end, s.now)
	}
	s.now = end
	return s.check()
}

// parts returns the agendas of independent parts: one for each accelerator, if there are no CPUs and the end
// is at a certain time, otherwise one for everything.
func (s *Sim) parts() []agenda {
	if len(s.cpus.all) > 0 || s.missing >= 0 || s.now > 0 {
		return []agenda{s.agenda}
	}
	all := make([]agenda, len(s.loops.hosts))
	for s.agenda.len() > 0 {
		e := s.agenda.take() // of a domain: its start or end
		all[s.domains[e.entity].host.index].add(e.at, e.kind(), e.entity, e.gen)
	}
	return all
}

// next processes the next event; false: there is none.
func (s *Sim) next() bool {
	e, ok := s.advance()
	if ok {
		s.happen(&e)
		s.loops.turns()
	}
	return ok
}

// happen processes an event.
func (s *Sim) happen(e *event) {
	switch e.kind() {
	case completed:
		s.devices.complete(s.devices.engines[e.entity])
	case accounting:
		s.cpus.tick()
	case sampled:
		s.loops.observe(s.cpus)
	case rotated:
		if p := &s.cpus.all[e.entity]; p.gen == e.gen {
			s.cpus.rotate(p)
		}
	case burst:
		if t := s.cpus.threads[e.entity]; t.gen == e.gen {
			s.guests.burstEnds(t)
		}
	case served:
		s.backend.decoded(s.domains[e.entity])
	case replied:
		d := s.domains[e.entity]
		s.backend.answered(d, d.poller.replies.pop())
	case awoken:
		if t := s.cpus.threads[e.entity]; t.gen == e.gen && !t.domain.presence.gone {
			s.guests.proceed(t)
		}
	case granted:
		d, c := s.domains[e.entity>>2], policies.Class(e.entity&3)
		if d.gate.coming[c].gen == e.gen && !d.presence.gone {
			d.host.grant(d, d.gate.coming[c].lease)
		}
	case weighed:
		if e.at == s.follow.next {
			s.follow.weigh()
		}
	case due:
		s.loops.hosts[e.entity].timeout()
	case appeared:
		s.appear(s.domains[e.entity])
	case vanished:
		s.endDomain(s.domains[e.entity])
	}
}

// appear attaches a domain, for the first time or again.
func (s *Sim) appear(d *domain) {
	h := d.host
	h.members = append(h.members, d)
	d.reports.looked = s.now
	d.presence.gone, d.presence.returns, d.reports.busy, d.reports.reported = false, false, false, Forever
	d.reports.heads, d.reports.worked, d.reports.rested = [3]uint64{}, [3]bool{}, [3]Time{}
	if d.presence.here = d.threads[0].program.calls(); d.presence.here {
		h.step(&policies.Event{Kind: policies.Attach, Domain: d.spec.domain(d.id)})
	}
	if !h.gpu.memory.allocate(d) {
		d.presence.failed = true
		if s.endDomain(d); !d.spec.Background {
			s.missing -= d.spec.Runs
		}
		return
	}
	h.step(&policies.Event{Kind: policies.Wake, Domain: policies.Domain{ID: d.id}, Signal: policies.ContextOpened})
	h.ring()
	for _, t := range d.threads {
		t.began, t.released = s.now, s.now
		s.guests.proceed(t)
	}
}

// endDomain ends a domain. Its requests in flight run to their end and are charged to it.
func (s *Sim) endDomain(d *domain) {
	if d.presence.gone {
		return
	}
	h := d.host
	for i, o := range h.members {
		if o == d {
			h.members = append(h.members[:i], h.members[i+1:]...)
			break
		}
	}
	h.tellUse(d)
	h.step(&policies.Event{Kind: policies.Wake, Domain: policies.Domain{ID: d.id}, Signal: policies.ContextClosed})
	for i := range d.gate.leases {
		d.gate.leases[i].open = false
		d.gate.coming[i].gen++
	}
	h.mark(d)
	d.presence.gone = true
	h.gpu.memory.free(d)
	for _, t := range d.threads {
		s.cpus.block(t)
	}
	for d.poller.ring.len() > 0 {
		d.poller.ring.pop()
	}
	h.left(d)
	h.ring()
}

// check returns an error unless the time for which engines were held equals the sum of the domains' charges,
// to the nanosecond.
func (s *Sim) check() error {
	for _, h := range s.loops.hosts {
		var held time.Duration
		for i := range h.gpu.engines {
			held += h.gpu.engines[i].busy
		}
		for _, d := range h.all { // charges since the last turn
			held -= d.reports.used[policies.Compute].Used.Busy() + d.reports.used[policies.Copy].Used.Busy()
		}
		if stray := h.sched.Strays(); held != h.charged || stray.Busy() > 0 {
			return fmt.Errorf("accelerator %q: its engines were held for %v, domains were charged %v, and %v were charged to none", h.gpu.name, held, h.charged, stray.Busy())
		}
	}
	return nil
}

// Events returns the number of events, Hash a hash over them.
func (s *Sim) Events() uint64     { return s.events }
func (s *Sim) Hash() uint64       { return s.hash }
func (s *Sim) Now() time.Duration { return time.Duration(s.now) }
