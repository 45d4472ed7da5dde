package exec

import (
	"math/bits"

	"pegasus/accel/soft/lane/arith"
	"pegasus/accel/soft/lane/ir"
)

// mask is a set of lanes of a group.
type mask [ir.MaxLanes / 64]uint64

func (m *mask) has(l int) bool { return m[l>>6&3]>>(l&63)&1 != 0 }
func (m *mask) empty() bool    { return m[0]|m[1]|m[2]|m[3] == 0 }

func (m *mask) count() int {
	return bits.OnesCount64(m[0]) + bits.OnesCount64(m[1]) + bits.OnesCount64(m[2]) + bits.OnesCount64(m[3])
}

// blend takes the lanes in where from r.
func (m *mask) blend(r, where *mask) {
	for i := range m {
		m[i] = m[i]&^where[i] | r[i]&where[i]
	}
}

func (m *mask) and(o *mask) mask {
	return mask{m[0] & o[0], m[1] & o[1], m[2] & o[2], m[3] & o[3]}
}

func (m *mask) without(o *mask) mask {
	return mask{m[0] &^ o[0], m[1] &^ o[1], m[2] &^ o[2], m[3] &^ o[3]}
}

func (m *mask) or(o *mask) mask {
	return mask{m[0] | o[0], m[1] | o[1], m[2] | o[2], m[3] | o[3]}
}

// warp returns the part of a warp, by its number within the group.
func (m *mask) warp(w int) uint32 { return uint32(m[w>>1&3] >> (w & 1 * 32)) }

func (m *mask) setWarp(w int, v uint32) {
	shift := w & 1 * 32
	m[w>>1&3] = m[w>>1&3]&^(0xffffffff<<shift) | uint64(v)<<shift
}

// sharesWarp reports whether both sets have threads of the same warp.
func (m *mask) sharesWarp(o *mask) bool {
	for w := range ir.MaxLanes / ir.WarpLanes {
		if m.warp(w) != 0 && o.warp(w) != 0 {
			return true
		}
	}
	return false
}

// firstLanes returns the set of the lanes below n.
func firstLanes(n int) (m mask) {
	for i := range m {
		switch k := n - i*64; {
		case k >= 64:
			m[i] = ^uint64(0)
		case k > 0:
			m[i] = 1<<k - 1
		}
	}
	return m
}

// active is the set of lanes that execute now, with frequently used properties of it.
type active struct {
	m      mask
	lo, hi int // the smallest range that holds all
	dense  bool
	// from and to are the smallest range of whole blocks that contains all lanes; whole is set if the range contains no
	// other threads.
	from, to int
	whole    bool
	listed   bool
	list     [ir.MaxLanes]uint8
	count    int

	threads int // of the group
}

func (a *active) set(m *mask) {
	a.m, a.listed = *m, false
	a.lo, a.hi = 0, 0
	for i, w := range m {
		if w != 0 {
			a.lo = i*64 + bits.TrailingZeros64(w)
			break
		}
	}
	for i := len(m) - 1; i >= 0; i-- {
		if m[i] != 0 {
			a.hi = i*64 + 64 - bits.LeadingZeros64(m[i])
			break
		}
	}
	a.count = m.count()
	a.dense = a.count == a.hi-a.lo
	a.from, a.to = a.lo&^(arith.BlockLanes-1), (a.hi+arith.BlockLanes-1)&^(arith.BlockLanes-1)
	a.whole = a.dense && a.lo == a.from && (a.hi == a.to || a.hi == a.threads)
}

// lanes lists the active lanes in order.
func (a *active) lanes() []uint8 {
	if !a.listed {
		n := 0
		for i, w := range a.m {
			for ; w != 0; w &= w - 1 {
				a.list[n] = uint8(i*64 + bits.TrailingZeros64(w))
				n++
			}
		}
		a.listed = true
	}
	return a.list[:a.count]
}

func combine(m, c *mask, op ir.BoolOp) {
	for i := range m {
		switch op {
		case ir.BoolAnd:
			m[i] &= c[i]
		case ir.BoolOr:
			m[i] |= c[i]
		case ir.BoolXor:
			m[i] ^= c[i]
		}
	}
}
