package reference

import "math/big"

// mode returns the rounding mode of an instruction.
func (in *inst) mode() string {
	for _, m := range []string{"rz", "rm", "rp"} {
		if in.mods[m] {
			return m
		}
	}
	return "rn"
}

// float executes an instruction that computes floats from floats, or pairs from pairs.
func (w *warp) float(in *inst, t *thread) {
	bits := in.types[0].bits
	x := make([]uint64, 3)
	for i := 1; i < len(in.args); i++ {
		x[i-1] = w.read(t, &in.args[i], typ{'b', either(in.packed, 2*bits, bits)})
	}
	if len(in.types) > 1 { // of all sources but the last
		for i := range len(in.args) - 2 {
			x[i] = widened(formatOf(in.types[1]), formatOf(in.types[0]), cut(x[i], in.types[1].bits))
		}
	}
	if !in.packed {
		w.write(t, &in.args[0], formatOf(in.types[0]).modified(in, x[0], x[1], x[2]))
		return
	}
	var r uint64
	for at := 0; at < 2*bits; at += bits {
		part := func(v uint64) uint64 { return cut(v>>at, bits) }
		r |= formatOf(in.types[0]).modified(in, part(x[0]), part(x[1]), part(x[2])) << at
	}
	w.write(t, &in.args[0], r)
}

// modified computes the result and applies the modifiers.
func (f format) modified(in *inst, a, b, c uint64) uint64 {
	if in.mods["ftz"] {
		a, b, c = f.flush(a), f.flush(b), f.flush(c)
	}
	if in.op == "copysign" {
		return b&^f.sign() | a&f.sign()
	}
	r := f.compute(in, a, b, c)
	if in.mods["ftz"] {
		r = f.flush(r)
	}
	if in.mods["sat"] {
		r = f.saturate(r)
	}
	if f.isNaN(r) {
		return f.nan()
	}
	if in.mods["relu"] && f.negative(r) {
		return 0
	}
	return r
}

// widened returns a value of one format in another that has all of its values.
func widened(from, to format, v uint64) uint64 {
	switch {
	case from.isNaN(v):
		return to.nan()
	case from.isInf(v):
		return to.inf(from.negative(v))
	case from.isZero(v):
		return to.zero(from.negative(v))
	}
	return to.round(from.number(v), "rn")
}

func (f format) compute(in *inst, a, b, c uint64) uint64 {
	mode := in.mode()
	switch in.op {
	case "add":
		return f.add(a, b, mode)
	case "sub":
		return f.add(a, b^f.sign(), mode)
	case "mul":
		return f.mul(a, b, mode)
	case "fma", "mad":
		return f.fma(a, b, c, mode)
	case "div":
		return f.div(a, b, mode)
	case "rcp":
		return f.div(f.round(big.NewFloat(1), "rn"), a, mode)
	case "sqrt":
		return f.sqrt(a, mode)
	case "neg":
		return a ^ f.sign()
	case "abs":
		return a &^ f.sign()
	case "min", "max":
		if len(in.args) > 3 {
			if in.mods["abs"] {
				a, b, c = a&^f.sign(), b&^f.sign(), c&^f.sign()
			}
			return f.extreme(f.extreme(a, b, in.op == "max", in.mods["NaN"]), c, in.op == "max", in.mods["NaN"])
		}
		if in.mods["xorsign"] {
			r := f.extreme(a&^f.sign(), b&^f.sign(), in.op == "max", in.mods["NaN"])
			return r | (a^b)&f.sign()
		}
		return f.extreme(a, b, in.op == "max", in.mods["NaN"])
	}
	unknown(in)
	return 0
}

// sumZero returns a zero from a sum of numbers that are zero or cancel: that of
// both, if both are zeroes of one sign, else -0 only when rounding down.
func (f format) sumZero(aZero, bZero, aNegative, bNegative bool, mode string) uint64 {
	if aZero && bZero && aNegative == bNegative {
		return f.zero(aNegative)
	}
	return f.zero(mode == "rm")
}

func (f format) add(a, b uint64, mode string) uint64 {
	switch {
	case f.isNaN(a), f.isNaN(b), f.isInf(a) && f.isInf(b) && a != b:
		return f.nan()
	case f.isInf(a):
		return a
	case f.isInf(b):
		return b
	}
	z := exact().Add(f.number(a), f.number(b))
	if z.Sign() == 0 {
		return f.sumZero(f.isZero(a), f.isZero(b), f.negative(a), f.negative(b), mode)
	}
	return f.round(z, mode)
}

func (f format) mul(a, b uint64, mode string) uint64 {
	negative := f.negative(a) != f.negative(b)
	switch {
	case f.isNaN(a), f.isNaN(b), f.isInf(a) && f.isZero(b), f.isZero(a) && f.isInf(b):
		return f.nan()
	case f.isInf(a), f.isInf(b):
		return f.inf(negative)
	case f.isZero(a), f.isZero(b):
		return f.zero(negative)
	}
	return f.round(exact().Mul(f.number(a), f.number(b)), mode)
}

func (f format) fma(a, b, c uint64, mode string) uint64 {
	negative := f.negative(a) != f.negative(b)
	switch {
	case f.isNaN(a), f.isNaN(b), f.isNaN(c), f.isInf(a) && f.isZero(b), f.isZero(a) && f.isInf(b):
		return f.nan()
	case f.isInf(a), f.isInf(b):
		if f.isInf(c) && f.negative(c) != negative {
			return f.nan()
		}
		return f.inf(negative)
	case f.isInf(c):
		return c
	}
	p := exact().Mul(f.number(a), f.number(b))
	z := exact().Add(p, f.number(c))
	if z.Sign() == 0 {
		return f.sumZero(f.isZero(a) || f.isZero(b), f.isZero(c), negative, f.negative(c), mode)
	}
	return f.round(z, mode)
}

func (f format) div(a, b uint64, mode string) uint64 {
	negative := f.negative(a) != f.negative(b)
	switch {
	case f.isNaN(a), f.isNaN(b), f.isInf(a) && f.isInf(b), f.isZero(a) && f.isZero(b):
		return f.nan()
	case f.isInf(a), f.isZero(b):
		return f.inf(negative)
	case f.isZero(a), f.isInf(b):
		return f.zero(negative)
	}
	// A quotient that is not exact has, in its first 300 bits, both zeroes and
	// ones behind those that matter: it can't be rounded to a middle.
	return f.round(new(big.Float).SetPrec(300).Quo(f.number(a), f.number(b)), mode)
}

func (f format) sqrt(a uint64, mode string) uint64 {
	switch {
	case f.isZero(a):
		return a
	case f.isNaN(a), f.negative(a):
		return f.nan()
	case f.isInf(a):
		return a
	}
	return f.round(new(big.Float).SetPrec(300).Sqrt(f.number(a)), mode)
}

// extreme returns the min or max: a NaN loses, unless it is to be kept; -0 is less than +0.
func (f format) extreme(a, b uint64, largest, nan bool) uint64 {
	switch {
	case f.isNaN(a) && f.isNaN(b), nan && (f.isNaN(a) || f.isNaN(b)):
		return f.nan()
	case f.isNaN(a):
		return b
	case f.isNaN(b):
		return a
	}
	return either(f.order(a).Cmp(f.order(b)) > 0 == largest, a, b)
}

// order numbers the values other than NaNs, in ascending order.
func (f format) order(v uint64) *big.Int {
	z := new(big.Int).SetUint64(v &^ f.sign())
	if f.negative(v) {
		z.Not(z) // -0 is -1
	}
	return z
}

// equalOrder is order with both zeroes equal.
func (f format) equalOrder(v uint64) *big.Int {
	if f.isZero(v) {
		v = 0
	}
	return f.order(v)
}

// compare executes setp and set. Of pairs, setp gives each its predicate.
func (w *warp) compare(in *inst, t *thread) {
	as := in.types[len(in.types)-1]
	width := typ{'b', either(in.packed, 32, as.bits)}
	a, b := w.read(t, &in.args[1], width), w.read(t, &in.args[2], width)
	joinedTo := func(r bool) bool {
		return len(in.args) < 4 && r || len(in.args) > 3 && joined(in, r, w.holds(t, &in.args[3]))
	}
	holds := func(at int) bool { return compared(in, as, cut(a>>at, as.bits), cut(b>>at, as.bits)) }
	d := &in.args[0]
	if in.op == "setp" {
		first, second := joinedTo(holds(0)), joinedTo(!holds(0))
		if in.packed {
			second = joinedTo(holds(16))
		}
		w.write(t, d, bit(first))
		if d.pair >= 0 {
			t.regs[d.pair] = bit(second)
		}
		return
	}
	to := in.types[0]
	var r uint64
	for at := 0; at < 32; at += either(in.packed, 16, 32) {
		yes := uint64(0xffffffff)
		if to.float() {
			yes = formatOf(to).round(big.NewFloat(1), "rn")
		}
		if joinedTo(holds(at)) {
			r |= cut(yes, either(in.packed, 16, to.bits)) << at
		}
	}
	w.write(t, d, r)
}

// compared reports whether a comparison of two values holds.
func compared(in *inst, as typ, a, b uint64) bool {
	if as.float() {
		f := formatOf(as)
		if in.mods["ftz"] {
			a, b = f.flush(a), f.flush(b)
		}
		return relation(in, f.equalOrder(a).Cmp(f.equalOrder(b)), f.isNaN(a) || f.isNaN(b))
	}
	for _, m := range []string{"lo", "ls", "hi", "hs"} {
		if in.mods[m] {
			as.kind = 'u'
		}
	}
	return relation(in, whole(a, as).Cmp(whole(b, as)), false)
}

func joined(in *inst, a, b bool) bool {
	switch {
	case in.mods["and"]:
		return a && b
	case in.mods["or"]:
		return a || b
	}
	return a != b
}

// relation reports whether a comparison holds, given the order of the operands.
func relation(in *inst, order int, nan bool) bool {
	for m, r := range map[string]bool{
		"eq": order == 0, "ne": order != 0, "lt": order < 0, "le": order <= 0, "gt": order > 0, "ge": order >= 0,
		"lo": order < 0, "ls": order <= 0, "hi": order > 0, "hs": order >= 0,
	} {
		if in.mods[m] {
			return r && !nan
		}
		if in.mods[m+"u"] {
			return r || nan
		}
	}
	return in.mods["nan"] == nan
}

func (w *warp) slct(in *inst, t *thread) {
	as, of := in.types[0], in.types[1]
	c := w.read(t, &in.args[3], of)
	first := c>>31 == 0
	if of.float() {
		if in.mods["ftz"] {
			c = single.flush(c)
		}
		first = !single.isNaN(c) && (!single.negative(c) || single.isZero(c))
	}
	w.write(t, &in.args[0], w.read(t, &in.args[either(first, 1, 2)], as))
}

func (w *warp) testp(in *inst, t *thread) {
	f := formatOf(in.types[0])
	v := w.read(t, &in.args[1], in.types[0])
	inf, nan, special := f.isInf(v), f.isNaN(v), f.isZero(v) || f.subnormal(v)
	var r bool
	switch {
	case in.mods["finite"]:
		r = !inf && !nan
	case in.mods["infinite"]:
		r = inf
	case in.mods["number"]:
		r = !nan
	case in.mods["notanumber"]:
		r = nan
	case in.mods["normal"]:
		r = !inf && !nan && !special
	default:
		r = f.subnormal(v)
	}
	w.write(t, &in.args[0], bit(r))
}

// convert executes cvt. The source is the low bits of its register; a result
// narrower than its register is extended by its own type.
func (w *warp) convert(in *inst, t *thread) {
	to, from := in.types[0], in.types[1]
	v := w.read(t, &in.args[1], from)
	var r uint64
	switch {
	case in.packed: // the first source is the upper half
		low := w.read(t, &in.args[2], from)
		r = finish(in, toFloat(in, v))<<16 | finish(in, toFloat(in, low))
	case !to.float() && !from.float():
		z := whole(v, from)
		if in.mods["sat"] {
			z = clamp(z, to)
		}
		r = wrap(whole(wrap(z, to.bits), to), 64)
	case !to.float():
		r = wrap(whole(toInteger(in, v), to), 64)
	case !from.float():
		if z := whole(v, from); z.Sign() != 0 {
			r = formatOf(to).round(exact().SetInt(z), in.mode())
		}
		r = finish(in, r)
	case formatOf(to) == single && formatOf(from) == double && double.isNaN(v) && !in.mods["sat"]:
		r = v>>32&single.sign() | 0x7fc00000 | v>>29&0x3fffff
	case formatOf(to) == double && formatOf(from) == single && single.isNaN(v) && !in.mods["sat"]:
		r = v&single.sign()<<32 | 0x7ff8000000000000 | v&0x3fffff<<29
	default:
		r = finish(in, toFloat(in, v))
	}
	w.write(t, &in.args[0], r)
}

// finish applies the modifiers to a float result of a conversion.
func finish(in *inst, v uint64) uint64 {
	f := formatOf(in.types[0])
	if in.mods["ftz"] && f == single {
		v = f.flush(v)
	}
	if in.mods["sat"] {
		v = f.saturate(v)
	}
	switch {
	case f.isNaN(v):
		return f.nan()
	case in.mods["relu"] && f.negative(v):
		return 0
	case in.mods["satfinite"] && f.isInf(v):
		return v - 1 // of the same sign
	}
	return v
}

// source returns a float operand of cvt, flushed if the instruction has .ftz.
func source(in *inst, v uint64) (format, uint64) {
	f := formatOf(in.types[1])
	if in.mods["ftz"] && f == single {
		v = f.flush(v)
	}
	return f, v
}

func toInteger(in *inst, v uint64) uint64 {
	to := in.types[0]
	f, v := source(in, v)
	switch {
	case f.isNaN(v):
		if f == double || to.bits == 64 {
			return 1 << (to.bits - 1)
		}
		return 0
	case f.isInf(v):
		return wrap(clamp(either(f.negative(v), big.NewInt(0).Neg(power(99)), power(99)), to), to.bits)
	}
	return wrap(clamp(wholeNumber(in, f, v), to), to.bits)
}

// wholeNumber rounds to an integer by rni, rzi, rmi or rpi.
func wholeNumber(in *inst, f format, v uint64) *big.Int {
	mode := "rn"
	for _, m := range []string{"rz", "rm", "rp"} {
		if in.mods[m+"i"] {
			mode = m
		}
	}
	z := f.number(v)
	n := integral(exact().Abs(z), magnitudeMode(mode, z.Sign() < 0))
	if f.negative(v) {
		n.Neg(n)
	}
	return n
}

func toFloat(in *inst, v uint64) uint64 {
	to := formatOf(in.types[0])
	f, v := source(in, v)
	switch {
	case f.isNaN(v):
		return to.nan()
	case f.isInf(v):
		return to.inf(f.negative(v))
	case f.isZero(v):
		return to.zero(f.negative(v))
	case in.mods["rni"] || in.mods["rzi"] || in.mods["rmi"] || in.mods["rpi"]:
		n := wholeNumber(in, f, v)
		if n.Sign() == 0 {
			return to.zero(f.negative(v))
		}
		return to.round(exact().SetInt(n), "rn")
	}
	return to.round(f.number(v), in.mode())
}
