package schedule

import (
	"pegasus/hypervisor/xen/dump"
	"pegasus/hypervisor/xen/trace"
)

// Printed corrects what is known by what the hypervisor printed between two times; the records up
// to the later one were taken.
//
// When in between it printed a line isn't known. So a credit that the vCPU was thought to have
// at any time in it is right, and of one that it wasn't, the least difference is made up for.
func (s *Shadow) Printed(d *dump.Dump, pool int, from, to int64) {
	p, ok := d.Pool(pool)
	if !ok {
		return
	}
	s.clock.by(p.Master)
	more := 0
	if s.told {
		more = p.Handed - s.counted - s.clock.round
	}
	if s.clock.handed() < from || more != 0 {
		s.clock.printed(from, more)
	}
	s.Until(to)
	if !s.told || more > 1 || more < -1 {
		s.told, s.counted = true, p.Handed-s.clock.round
	}
	if more < 0 { // which was too early, so that it had been before
		from = min(from, s.clock.handed()-s.period/ticks)
	}
	calm := s.clock.handed() < from
	for i := range d.VCPUs {
		v := &d.VCPUs[i]
		u := s.of(v.ID)
		if u == nil {
			continue
		}
		if off := u.off(v.Credit, from, to); off != 0 {
			u.credit += off
			u.past = u.past[:0]
			if v.Priority != dump.Boost {
				u.priority = v.Priority
			}
		}
		if u.changed < from && v.Earns {
			s.start(u.changed, u)
		} else if u.changed < from {
			s.stop(u.changed, u)
		}
	}
	for i := range d.CPUs { // who runs since before anything was noted
		if u := s.of(d.CPUs[i].Running); u != nil && u.from == 0 {
			u.begin(from, d.CPUs[i].Number)
		}
	}
	if calm {
		s.balance = p.Balance
	}
}

// Told says whether the hypervisor has printed what there is.
func (s *Shadow) Told() bool { return s.told }

// Hands is when credits will be handed out next, as far as is known.
func (s *Shadow) Hands() int64 { return s.clock.handed() + s.clock.period + s.clock.usual }

// Gets is what credit a vCPU will have then, in ns, if it doesn't run until then; now is this instant.
func (s *Shadow) Gets(id trace.VCPU, now int64) int64 {
	u := s.units[id]
	if u == nil {
		return 0
	}
	left := u.credit * perCredit
	if u.runs {
		left -= max(now-u.from, 0)
	}
	if u.earns {
		left += u.gets * perCredit
	}
	return left
}

// Unsure is by how much the time differs at which credits may have been handed out, if now is one
// of those; else what was handed out is known.
func (s *Shadow) Unsure(now int64) int64 {
	c := &s.clock
	if now < c.early || (now-c.early)%c.period > c.late-c.early {
		return 0
	}
	return c.late - c.early
}

// off is how far a credit is from what the vCPU had between two times.
func (u *earner) off(credit, from, to int64) (least int64) {
	least = credit - u.credit
	for i := len(u.past) - 1; i >= 0; i-- {
		if u.past[i].at <= to {
			if off := credit - u.past[i].credit; max(off, -off) < max(least, -least) {
				least = off
			}
		}
		if u.past[i].at <= from {
			break
		}
	}
	return least
}
