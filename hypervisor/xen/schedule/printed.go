package schedule

import (
	"pegasus/hypervisor/xen/dump"
	"pegasus/hypervisor/xen/trace"
)

// Printed corrects the credits by a dump that the hypervisor printed between two times; the records up to the later
// one have been taken.
//
// The time of each printed line within that interval is unknown. So a printed credit is consistent if the vCPU had it
// at any time in the interval; otherwise the smallest difference is corrected.
func (s *CreditModel) Printed(d *dump.Dump, pool int, from, to int64) {
	p, ok := d.Pool(pool)
	if !ok {
		return
	}
	s.clock.by(p.Master)
	more := 0
	if s.synced {
		more = p.Handed - s.counted - s.clock.round
	}
	if s.clock.handed() < from || more != 0 {
		s.clock.printed(from, more)
	}
	s.Until(to)
	if !s.synced || more > 1 || more < -1 {
		s.synced, s.counted = true, p.Handed-s.clock.round
	}
	if more < 0 { // the hand-out was estimated too early
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
	for i := range d.CPUs { // vCPUs that have run since before the first record
		if u := s.of(d.CPUs[i].Running); u != nil && u.from == 0 {
			u.begin(from, d.CPUs[i].Number)
		}
	}
	if calm {
		s.balance = p.Balance
	}
}

// Synced reports whether a dump has been applied since records were last lost.
func (s *CreditModel) Synced() bool { return s.synced }

// Hands returns the estimated time of the next hand-out of credits.
func (s *CreditModel) Hands() int64 { return s.clock.handed() + s.clock.period + s.clock.usual }

// Gets returns the credit in ns that a vCPU has after the next hand-out, if it doesn't run between now and then.
func (s *CreditModel) Gets(id trace.VCPU, now int64) int64 {
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

// Unsure returns the width of the interval in which the last hand-out may have happened, if now is in such an
// interval; otherwise 0, as the credits are certain.
func (s *CreditModel) Unsure(now int64) int64 {
	c := &s.clock
	if now < c.early || (now-c.early)%c.period > c.late-c.early {
		return 0
	}
	return c.late - c.early
}

// off returns the smallest difference of a credit from the vCPU's credits between two times.
func (u *vcpuCredit) off(credit, from, to int64) (least int64) {
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
