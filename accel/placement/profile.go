package placement

import "math/bits"

// Profile describes the strength of an accelerator. Only ratios between accelerators count, so any units are valid that
// are the same for all of them.
type Profile struct {
	Compute uint64 // for example cores times clock
	Memory  uint64 // bytes
	In, Out uint64 // bandwidth from and to the host
}

// bandwidth is that of both directions.
func (p Profile) bandwidth() uint64 { return p.In + p.Out }

// best returns the greatest of each that any of ps has.
func best(ps []*seat) Profile {
	var b Profile
	for _, s := range ps {
		b.Compute = max(b.Compute, s.Compute)
		b.Memory = max(b.Memory, s.Memory)
		if s.bandwidth() > b.bandwidth() {
			b.In, b.Out = s.In, s.Out
		}
	}
	return b
}

// strength is the static part of an accelerator's weight, in thousandths of what
// one with the best of everything would have: half for compute, a quarter each
// for memory and bandwidth.
func (p Profile) strength(b Profile) uint64 {
	return part(500, p.Compute, b.Compute) + part(250, p.Memory, b.Memory) + part(250, p.bandwidth(), b.bandwidth())
}

// part returns whole·n/of, or whole if of is 0.
func part(whole, n, of uint64) uint64 {
	if of == 0 {
		return whole
	}
	hi, lo := bits.Mul64(whole, n)
	q, _ := bits.Div64(hi, lo, of)
	return q
}
