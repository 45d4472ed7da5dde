package sim

import (
	"pegasus/policies"
	follow "pegasus/policies/boost"
	"pegasus/vcpu"
)

// following makes the CPUs follow the accelerators, by the daemon's code.
type following struct {
	*clock
	boosts  *follow.Boosts // nil: the CPUs don't follow
	cpus    *processors
	domains []*domain
	next    Time // when the boosts' next event is due
}

// begin makes the CPUs follow the windows of these domains. All of them with virtual CPUs are in one pool.
func (f *following) begin(domains []*domain) {
	f.domains = domains
	f.boosts = &follow.Boosts{}
	p := follow.Pool{Name: "host"}
	for _, d := range f.domains {
		if d.threads[0].cpu == nil {
			continue
		}
		if d.spec.Background { // belongs to no machine
			p.Others += d.cpu.weight
			continue
		}
		p.Machines = append(p.Machines, follow.Machine{Domain: d.name, Weight: d.cpu.weight, Has: d.cpu.weight, Least: 1, Most: int64(vcpu.MaxCredits)})
	}
	f.boosts.Set(f.now, []follow.Pool{p})
}

// window reports a decision.
func (f *following) window(d *domain, a *policies.Action) {
	until := follow.Window(f.now, a)
	if f.boosts == nil || until == d.cpu.follows || a.Lease.Class == policies.Copy {
		return
	}
	if d.cpu.follows = until; until == 0 {
		f.boosts.Close(f.now, d.name)
	} else {
		f.boosts.Open(f.now, d.name, until.Sub(f.now))
	}
	f.weigh()
}

// weigh applies the new weights.
func (f *following) weigh() {
	for _, w := range f.boosts.Writes(f.now) {
		for _, d := range f.domains {
			if d.name == w.Domain {
				f.reweigh(d, w.Weight)
			}
		}
	}
	if next := max(f.boosts.Next(), f.now); next != Forever && next != f.next {
		f.next = next
		f.at(next, weighed, 0, 0)
	}
}

// reweigh changes a domain's weight. The lag of its threads in time stays, and so does the rest of their
// slices.
func (f *following) reweigh(d *domain, weight int64) {
	was := d.cpu.weight
	scaled := func(v int64) int64 { return v * was / weight }
	for _, t := range d.threads {
		p := t.cpu
		if p == nil {
			continue
		}
		if p.running != nil {
			f.cpus.bill(p.running)
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
	d.cpu.weight = weight
	for _, t := range d.threads {
		if p := t.cpu; p != nil && p.slicing {
			f.cpus.fairSlice(p)
		}
	}
}
