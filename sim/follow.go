package sim

import (
	"pegasus/policies"
	follow "pegasus/policies/boost"
	"pegasus/vcpu"
)

// beginFollowing makes the CPUs follow the accelerators, if the plan requests it. All domains with virtual
// CPUs are in one pool.
func (s *Sim) beginFollowing() {
	if !s.plan.CPUFollows {
		return
	}
	s.boosts = &follow.Boosts{}
	p := follow.Pool{Name: "host"}
	for _, d := range s.domains {
		if d.threads[0].cpu == nil {
			continue
		}
		if d.spec.Background { // belongs to no machine
			p.Others += d.weight
			continue
		}
		p.Machines = append(p.Machines, follow.Machine{Domain: d.name, Weight: d.weight, Has: d.weight, Least: 1, Most: int64(vcpu.MaxCredits)})
	}
	s.boosts.Set(s.now, []follow.Pool{p})
}

// window reports a decision.
func (s *Sim) window(d *domain, a *policies.Action) {
	until := follow.Window(s.now, a)
	if s.boosts == nil || until == d.follows || a.Lease.Class == policies.Copy {
		return
	}
	if d.follows = until; until == 0 {
		s.boosts.Close(s.now, d.name)
	} else {
		s.boosts.Open(s.now, d.name, until.Sub(s.now))
	}
	s.weigh()
}

// weigh applies the new weights.
func (s *Sim) weigh() {
	for _, w := range s.boosts.Writes(s.now) {
		for _, d := range s.domains {
			if d.name == w.Domain {
				s.reweigh(d, w.Weight)
			}
		}
	}
	if next := max(s.boosts.Next(), s.now); next != Forever && next != s.weighed {
		s.weighed = next
		s.agenda.add(next, weighed, 0, 0)
	}
}

// reweigh changes a domain's weight. The lag of its threads in time stays, and so does the rest of their
// slices.
func (s *Sim) reweigh(d *domain, weight int64) {
	was := d.weight
	scaled := func(v int64) int64 { return v * was / weight }
	for _, t := range d.threads {
		p := t.cpu
		if p == nil {
			continue
		}
		if p.running != nil {
			s.bill(p.running)
		}
		if t.mode == blocked {
			t.fair.lag = scaled(t.fair.lag)
			continue
		}
		average := p.average()
		left := t.fair.deadline - t.fair.ran
		t.fair.ran = average - scaled(average-t.fair.ran)
		t.fair.deadline = t.fair.ran + scaled(left)
	}
	d.weight = weight
	for _, t := range d.threads {
		if p := t.cpu; p != nil && p.slicing {
			s.fairSlice(p)
		}
	}
}
