package reference

import (
	"math/big"
	"strings"
)

// video executes the video instructions: scalar ones on bytes, halves or words,
// and those on the two halves or four bytes of words.
func (w *warp) video(in *inst, t *thread) {
	name := strings.TrimRight(in.op, "24")
	lanes, bits := 1, 32
	switch in.op[len(name):] {
	case "2":
		lanes, bits = 2, 16
	case "4":
		lanes, bits = 4, 8
	}
	to, ta, tb := typ{'u', 32}, in.types[0], in.types[1]
	if name != "vset" {
		to, ta, tb = in.types[0], in.types[1], in.types[2]
	}
	if lanes == 1 {
		w.write(t, &in.args[0], w.scalarVideo(in, t, name, to, ta, tb))
		return
	}
	d, a, b := &in.args[0], &in.args[1], &in.args[2]
	u32 := typ{'b', 32}
	pair := w.read(t, b, u32)<<32 | w.read(t, a, u32)
	lane := func(o *operand, i, first int, as typ) *big.Int {
		at := first + i
		if o.parts != nil {
			at = o.parts[i]
		}
		return whole(pair>>(bits*at), typ{as.kind, bits})
	}
	result := w.read(t, &in.args[3], u32)
	for i := range lanes {
		if d.parts != nil && !contains(d.parts, i) {
			continue
		}
		r := videoResult(in, name, lane(a, i, 0, ta), lane(b, i, lanes, tb))
		if in.mods["sat"] {
			r = clamp(r, typ{to.kind, bits})
		}
		if in.mods["add"] {
			result = cut(result+wrap(r, 64), 32)
			continue
		}
		field := (uint64(1)<<bits - 1) << (bits * i)
		result = result&^field | wrap(r, bits)<<(bits*i)
	}
	w.write(t, d, result)
}

func contains(list []int, v int) bool {
	for _, x := range list {
		if x == v {
			return true
		}
	}
	return false
}

// videoResult returns the exact result of an instruction on two numbers.
func videoResult(in *inst, name string, a, b *big.Int) *big.Int {
	z := new(big.Int)
	switch name {
	case "vadd":
		return z.Add(a, b)
	case "vsub":
		return z.Sub(a, b)
	case "vabsdiff":
		return z.Abs(z.Sub(a, b))
	case "vmin":
		return either(a.Cmp(b) < 0, a, b)
	case "vmax":
		return either(a.Cmp(b) > 0, a, b)
	case "vavrg": // to the nearest, away from zero
		z.Add(a, b)
		if z.Sign() >= 0 {
			z.Add(z, big.NewInt(1))
		}
		return z.Rsh(z, 1)
	case "vshl", "vshr":
		n := uint(b.Uint64() & 31)
		if in.mods["clamp"] {
			n = uint(min(b.Uint64(), 32))
		}
		if name == "vshl" {
			return z.Lsh(a, n)
		}
		return z.Rsh(a, n)
	case "vset":
		c := a.Cmp(b)
		for op, holds := range map[string]bool{"eq": c == 0, "ne": c != 0, "lt": c < 0, "le": c <= 0, "gt": c > 0, "ge": c >= 0} {
			if in.mods[op] {
				return big.NewInt(int64(bit(holds)))
			}
		}
	}
	unknown(in)
	return nil
}

func (w *warp) scalarVideo(in *inst, t *thread, name string, to, ta, tb typ) uint64 {
	source := func(o *operand, as typ) *big.Int {
		v := w.read(t, o, typ{'b', 32})
		if o.unit == 0 {
			return whole(v, as)
		}
		return whole(v>>(o.unit*o.parts[0]), typ{as.kind, o.unit})
	}
	a, b := source(&in.args[1], ta), source(&in.args[2], tb)
	if name == "vmad" {
		return w.videoMad(in, t, a, b)
	}
	d := &in.args[0]
	r := videoResult(in, name, a, b)
	if in.mods["sat"] {
		r = clamp(r, typ{to.kind, either(d.unit > 0, d.unit, 32)})
	}
	v := wrap(r, 32)
	if len(in.args) < 4 {
		return v
	}
	c := w.read(t, &in.args[3], typ{'b', 32})
	if d.unit > 0 {
		shift := d.unit * d.parts[0]
		field := (uint64(1)<<d.unit - 1) << shift
		return c&^field | v<<shift&field
	}
	return wrap(reduce(in, r, whole(c, to)), 32)
}

// videoMad returns a product and a sum, shifted. A negative product or addend is a
// complement and one more.
func (w *warp) videoMad(in *inst, t *thread, a, b *big.Int) uint64 {
	negative, c := in.args[1].minus != in.args[2].minus, &in.args[3]
	signed := in.types[1].kind == 's' || in.types[2].kind == 's' || negative || c.minus
	sum := new(big.Int).Mul(a, b)
	addend := whole(w.read(t, c, typ{'b', 32}), typ{either(signed, byte('s'), 'u'), 32})
	switch {
	case in.mods["po"]:
		sum.Add(sum, big.NewInt(1))
	case negative:
		sum.Neg(sum)
	case c.minus:
		addend.Neg(addend)
	}
	sum.Add(sum, addend)
	switch {
	case in.mods["shr7"]:
		sum.Rsh(sum, 7)
	case in.mods["shr15"]:
		sum.Rsh(sum, 15)
	}
	if in.mods["sat"] {
		sum = clamp(sum, typ{either(signed, byte('s'), 'u'), 32})
	}
	return wrap(sum, 32)
}
