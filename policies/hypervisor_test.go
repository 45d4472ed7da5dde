package policies

import (
	"cmp"
	"slices"
	"time"

	"pegasus/vcpu"
)

// cpus is the hypervisor of a model's domains: every 30 ms it gives each its part of the CPU credits, and the
// domains with the most credit run.
type cpus struct {
	n    int // CPUs
	next Time
	left map[*client]int64 // credits
}

func (h *cpus) schedule(m *model) *vcpu.Sample {
	h.next = m.now.Add(30 * time.Millisecond)
	if h.left == nil {
		h.left = make(map[*client]int64)
	}
	var weights int64
	for _, c := range m.domains {
		weights += int64(Credits(c.cpu).OrDefault())
	}
	for _, c := range m.domains {
		h.left[c] = min(h.left[c]+int64(h.n)*300*int64(Credits(c.cpu).OrDefault())/weights, 300)
	}
	order := slices.Clone(m.domains)
	slices.SortStableFunc(order, func(a, b *client) int { return cmp.Compare(h.left[b], h.left[a]) })
	s := &vcpu.Sample{At: m.now, Period: 30 * time.Millisecond, Quality: vcpu.Exact}
	for i, c := range order {
		v := vcpu.VCPU{State: vcpu.Runnable}
		if i < h.n {
			v.State = vcpu.Running
		}
		s.Domains = append(s.Domains, vcpu.Schedule{ID: c.id, Weight: Credits(c.cpu), Remaining: h.left[c], VCPUs: []vcpu.VCPU{v}})
		if i < h.n {
			h.left[c] -= 300
		}
	}
	slices.SortFunc(s.Domains, func(a, b vcpu.Schedule) int { return cmp.Compare(a.ID, b.ID) })
	return s
}
