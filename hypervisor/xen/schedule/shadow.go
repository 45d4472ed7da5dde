package schedule

import (
	"slices"

	"pegasus/hypervisor/xen/trace"
)

// Shadow is the credit that vCPUs have left under Credit, which the hypervisor doesn't tell in
// its trace: computed from how long they ran and from their domains' weights, as Xen's
// csched_acct does. In which of its periods of 30 ms Xen is isn't known, so a credit may
// be a period old. What the hypervisor prints corrects it.
type Shadow struct {
	Weights map[uint16]int // of domains; 256 of those that aren't there
	Slice   int64          // the period, and the most that a vCPU may earn in it, ns
	credit  map[trace.VCPU]*credit
	next    int64 // when it accounts
}

type credit struct {
	left  int64 // ns
	ran   int64 // as last seen
	earns bool
	over  bool // has none, as accounted
}

// NewShadow begins with credits of nobody.
func NewShadow(slice int64, weights map[uint16]int) *Shadow {
	return &Shadow{Weights: weights, Slice: slice, credit: make(map[trace.VCPU]*credit)}
}

// Seed has a vCPU have so much credit at this instant.
func (s *Shadow) Seed(h *History, id trace.VCPU, left int64, over bool) {
	c := s.of(id)
	*c = credit{left: left, over: over, earns: true}
	if v := h.VCPU(id); v != nil {
		c.ran, _, _ = v.Did(h.Now())
	}
}

func (s *Shadow) of(id trace.VCPU) *credit {
	c := s.credit[id]
	if c == nil {
		c = &credit{}
		s.credit[id] = c
	}
	return c
}

// Left is a vCPU's credit, in ns, and whether it counts as having none.
func (s *Shadow) Left(id trace.VCPU) (ns int64, over bool) {
	if c := s.credit[id]; c != nil {
		return c.left, c.over
	}
	return 0, false
}

// Look accounts for what vCPUs did up to now, if a period has passed. It is called at least
// once a period.
func (s *Shadow) Look(h *History) {
	now := h.Now()
	if now < s.next || s.Slice <= 0 {
		return
	}
	if s.next += s.Slice; s.next <= now {
		s.next = now + s.Slice
	}
	s.account(h, now)
}

func (s *Shadow) account(h *History, now int64) {
	earn := make(map[uint16]int) // vCPUs of a domain that do
	for _, v := range h.VCPUs() {
		c := s.of(v.ID)
		ran, _, _ := v.Did(now)
		c.left -= ran - c.ran
		if ran > c.ran && !c.earns {
			c.earns = true
		}
		c.ran = ran
		if c.earns {
			earn[v.ID.Domain]++
		}
	}
	gets := s.divide(earn, int64(len(h.CPUs()))*s.Slice)
	for _, v := range h.VCPUs() {
		c := s.of(v.ID)
		if !c.earns {
			continue
		}
		c.left = max(c.left+gets[v.ID.Domain]/int64(earn[v.ID.Domain]), -s.Slice)
		c.over = c.left < 0
		if c.left > s.Slice {
			c.left, c.earns = c.left/2, false
		}
	}
}

// divide divides a period's time of all CPUs by weight; no vCPU gets more than one CPU's, and
// what that leaves is for the others.
func (s *Shadow) divide(earn map[uint16]int, left int64) map[uint16]int64 {
	gets := make(map[uint16]int64, len(earn))
	weights := int64(0)
	var order []uint16
	for d, n := range earn {
		order = append(order, d)
		weights += s.weight(d) * int64(n)
	}
	// Who can take least for its weight comes first: of a weight the number of vCPUs doesn't matter.
	slices.SortFunc(order, func(a, b uint16) int {
		if wa, wb := s.weight(a), s.weight(b); wa != wb {
			return int(wb - wa)
		}
		return int(a) - int(b)
	})
	for _, d := range order {
		n := int64(earn[d])
		w := s.weight(d) * n
		got := min(left*w/weights, n*s.Slice)
		gets[d] = got
		left, weights = left-got, weights-w
	}
	return gets
}

func (s *Shadow) weight(domain uint16) int64 {
	if w := s.Weights[domain]; w > 0 {
		return int64(w)
	}
	return 256
}
