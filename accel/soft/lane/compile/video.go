package compile

import (
	"math"
	"math/bits"

	"pegasus/accel/ptx"
	"pegasus/accel/soft/lane/arith"
	"pegasus/accel/soft/lane/ir"
)

// The video instructions, as the manual's pseudocode has them: operands are
// bytes, halves or words, extended; the result may be saturated, combined with
// a third operand, or merged into it.

// piece extracts a selected part of a word, extended according to its type.
func piece(x uint64, sel ptx.Selector, i int, signed bool) int64 {
	width := 32
	switch {
	case sel.N > 0 && sel.Half:
		width = 16
	case sel.N > 0:
		width = 8
	}
	if sel.N > 0 {
		x >>= sel.Part(i) * width
	}
	x <<= 64 - width
	if signed {
		return int64(x) >> (64 - width)
	}
	return int64(x >> (64 - width))
}

// within clamps to the integers of a width.
func within(x int64, width int, signed bool) int64 {
	if signed {
		return max(min(x, 1<<(width-1)-1), -1<<(width-1))
	}
	return max(min(x, 1<<width-1), 0)
}

// videoFunc returns the primary operation of a video instruction.
func videoFunc(in *ptx.Inst) func(a, b int64) int64 {
	name := in.Op.String()
	if last := name[len(name)-1]; last == '2' || last == '4' {
		name = name[:len(name)-1]
	}
	switch name {
	case "vadd":
		return func(a, b int64) int64 { return a + b }
	case "vsub":
		return func(a, b int64) int64 { return a - b }
	case "vabsdiff":
		return func(a, b int64) int64 { return max(a-b, b-a) }
	case "vmin":
		return func(a, b int64) int64 { return min(a, b) }
	case "vmax":
		return func(a, b int64) int64 { return max(a, b) }
	case "vavrg":
		return func(a, b int64) int64 {
			if a+b >= 0 {
				return (a + b + 1) >> 1
			}
			return (a + b) >> 1
		}
	case "vset":
		return compareFunc(in)
	}
	wrap, left := in.Mods.Has(ptx.Wrap), name == "vshl"
	return func(a, b int64) int64 {
		if wrap {
			b &= 31
		}
		b = min(b, 32)
		if !left {
			return a >> b
		}
		if b == 32 { // bits beyond a word only matter for saturation
			a = max(min(a, math.MaxInt32), math.MinInt32)
		}
		return a << b
	}
}

// compareFunc returns the comparison of vset, with the result 1 or 0.
func compareFunc(in *ptx.Inst) func(a, b int64) int64 {
	mode := in.Mods.First(ptx.EQ, ptx.NE, ptx.LT, ptx.LE, ptx.GT, ptx.GE)
	return func(a, b int64) int64 {
		var r bool
		switch mode {
		case ptx.EQ:
			r = a == b
		case ptx.NE:
			r = a != b
		case ptx.LT:
			r = a < b
		case ptx.LE:
			r = a <= b
		case ptx.GT:
			r = a > b
		case ptx.GE:
			r = a >= b
		}
		if r {
			return 1
		}
		return 0
	}
}

// videoTypes returns the types of the result and of the operands: vset names the operands' only.
func videoTypes(in *ptx.Inst) (d, a, b ptx.Type) {
	if in.Type3 == ptx.NoType {
		return ptx.U32, in.Type, in.Type2
	}
	return in.Type, in.Type2, in.Type3
}

func lowerVideo(l *lowerer, in *ptx.Inst) {
	var src []ir.Place
	for i := 1; i < len(in.Args); i++ {
		src = append(src, l.src(&in.Args[i], ptx.U32))
	}
	l.lanes(videoLane(in), l.dst(&in.Args[0], false), [4]bool{}, src...)
}

// videoLane returns the function of a scalar video instruction.
func videoLane(in *ptx.Inst) arith.LaneFunc {
	td, ta, tb := videoTypes(in)
	f := videoFunc(in)
	sa, sb, sd := in.Args[1].Sel, in.Args[2].Sel, in.Args[0].Sel
	second := in.Mods.First(ptx.RN, ptx.Add, ptx.Min, ptx.Max)
	sat := in.Mods.Has(ptx.SAT)
	width := 32
	switch {
	case sd.N > 0 && sd.Half:
		width = 16
	case sd.N > 0:
		width = 8
	}
	return func(a, b, c uint64) uint64 {
		t := f(piece(a, sa, 0, ta.Signed()), piece(b, sb, 0, tb.Signed()))
		if sat {
			t = within(t, width, td.Signed())
		}
		third := piece(c, ptx.Selector{}, 0, td.Signed())
		switch second {
		case ptx.Add:
			t += third
		case ptx.Min:
			t = min(t, third)
		case ptx.Max:
			t = max(t, third)
		}
		if width == 32 {
			return uint64(uint32(t))
		}
		keep := uint64(1<<width-1) << (sd.Part(0) * width)
		return c&^keep | uint64(t)<<(sd.Part(0)*width)&keep
	}
}

func lowerVideoSIMD(l *lowerer, in *ptx.Inst) {
	l.lanes(simdLane(in), l.dst(&in.Args[0], false), [4]bool{},
		l.src(&in.Args[1], ptx.U32), l.src(&in.Args[2], ptx.U32), l.src(&in.Args[3], ptx.U32))
}

// simdLane returns the function of a video instruction on two halves or four bytes. Selectors pick from the pair b:a.
func simdLane(in *ptx.Inst) arith.LaneFunc {
	name := in.Op.String()
	n := int(name[len(name)-1] - '0')
	td, ta, tb := videoTypes(in)
	f := videoFunc(in)
	sat, add := in.Mods.Has(ptx.SAT), in.Mods.Has(ptx.Add)
	width := 32 / n
	part := func(pair uint64, sel ptx.Selector, i, first int, signed bool) int64 {
		at := first + i
		if sel.N > 0 {
			at = sel.Part(i)
		}
		x := pair >> (at * width) << (64 - width)
		if signed {
			return int64(x) >> (64 - width)
		}
		return int64(x >> (64 - width))
	}
	var chosen [4]bool
	for i := range n {
		chosen[i] = in.Args[0].Sel.N == 0
	}
	for i := range int(in.Args[0].Sel.N) {
		chosen[in.Args[0].Sel.Part(i)] = true
	}
	return func(a, b, c uint64) uint64 {
		pair := b<<32 | a
		d := c
		for i := range n {
			if !chosen[i] {
				continue
			}
			t := f(part(pair, in.Args[1].Sel, i, 0, ta.Signed()), part(pair, in.Args[2].Sel, i, n, tb.Signed()))
			if sat {
				t = within(t, width, td.Signed())
			}
			if add {
				d += uint64(t)
				continue
			}
			keep := uint64(1<<width-1) << (i * width)
			d = d&^keep | uint64(t)<<(i*width)&keep
		}
		return d & 0xffffffff
	}
}

// lowerVmad lowers vmad, which has a sum of more than 64 bits.
func lowerVmad(l *lowerer, in *ptx.Inst) {
	a, b, c := &in.Args[1], &in.Args[2], &in.Args[3]
	ta, tb := in.Type2, in.Type3
	plusOne, flip := in.Mods.Has(ptx.PO), a.Not != b.Not
	signed := ta.Signed() || tb.Signed() || flip || c.Not
	shift := map[ptx.Mod]uint{ptx.SHR7: 7, ptx.SHR15: 15}[in.Mods.First(ptx.RN, ptx.SHR7, ptx.SHR15)]
	sat := in.Mods.Has(ptx.SAT)
	if plusOne && (a.Not || b.Not || c.Not) {
		l.fail("vmad.po takes no minus signs")
	}
	l.lanes(func(x, y, z uint64) uint64 {
		hi, lo := product128(piece(x, a.Sel, 0, ta.Signed()), piece(y, b.Sel, 0, tb.Signed()))
		one := uint64(0)
		switch {
		case plusOne:
			one = 1
		case flip:
			hi, lo, one = ^hi, ^lo, 1
		case c.Not:
			z, one = ^z, 1
		}
		third := piece(z&0xffffffff, c.Sel, 0, signed)
		lo, carry := bits.Add64(lo, uint64(third), one)
		hi, _ = bits.Add64(hi, uint64(third>>63), carry)
		r := lo
		if shift > 0 {
			r = lo>>shift | hi<<(64-shift)
		} else if int64(hi) != int64(lo)>>63 && signed && sat { // more than 64 bits
			r = uint64(math.MaxInt64 ^ int64(hi)>>63)
		}
		switch {
		case sat && signed:
			r = uint64(within(int64(r), 32, true))
		case sat:
			r = min(r, math.MaxUint32)
		}
		return r & 0xffffffff
	}, l.dst(&in.Args[0], false), [4]bool{}, l.src(a, ptx.U32), l.src(b, ptx.U32), l.src(c, ptx.U32))
}

// product128 returns the signed product of two numbers.
func product128(a, b int64) (hi, lo uint64) {
	hi, lo = bits.Mul64(uint64(a), uint64(b))
	if a < 0 {
		hi -= uint64(b)
	}
	if b < 0 {
		hi -= uint64(a)
	}
	return hi, lo
}
