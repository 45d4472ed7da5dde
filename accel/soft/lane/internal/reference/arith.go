package reference

import "math/big"

// one executes an instruction for one thread.
func (w *warp) one(in *inst, t *thread) {
	switch in.op {
	case "ld", "ldu":
		w.load(in, t)
		return
	case "st":
		w.store(in, t)
		return
	case "atom", "red":
		w.atomic(in, t)
		return
	case "cvta":
		w.generic(in, t)
		return
	case "isspacep":
		w.write(t, &in.args[0], bit(in.mods[spaceOf(w.read(t, &in.args[1], typ{'u', 64}))]))
		return
	case "mov":
		w.mov(in, t)
		return
	case "cvt":
		w.convert(in, t)
		return
	case "membar", "fence":
		return
	case "setp", "set":
		w.compare(in, t)
		return
	case "selp":
		w.write(t, &in.args[0], w.read(t, &in.args[either(w.holds(t, &in.args[3]), 1, 2)], in.types[0]))
		return
	case "slct":
		w.slct(in, t)
		return
	case "testp":
		w.testp(in, t)
		return
	}
	if in.op[0] == 'v' {
		w.video(in, t)
		return
	}
	as := in.types[0]
	switch {
	case as.kind == 'p':
		w.predicates(in, t)
	case as.float():
		w.float(in, t)
	case in.mods["cc"] || in.op == "addc" || in.op == "subc" || in.op == "madc":
		w.carried(in, t)
	default:
		w.integer(in, t)
	}
}

func either[T any](b bool, yes, no T) T {
	if b {
		return yes
	}
	return no
}

func (w *warp) predicates(in *inst, t *thread) {
	a := w.holds(t, &in.args[1])
	b := len(in.args) > 2 && w.holds(t, &in.args[2])
	var r bool
	switch in.op {
	case "and":
		r = a && b
	case "or":
		r = a || b
	case "xor":
		r = a != b
	case "not":
		r = !a
	default:
		unknown(in)
	}
	w.write(t, &in.args[0], bit(r))
}

// sources reads the operands after the first as integers of one type, those marked by word as u32.
func (w *warp) sources(in *inst, t *thread, as typ, word ...int) []*big.Int {
	var list []*big.Int
	for i := 1; i < len(in.args); i++ {
		kind := as
		for _, k := range word {
			if k == i {
				kind = typ{'u', 32}
			}
		}
		list = append(list, whole(w.read(t, &in.args[i], kind), kind))
	}
	return list
}

// integer executes an instruction that computes integers from integers.
func (w *warp) integer(in *inst, t *thread) {
	if in.packed {
		w.halves(in, t)
		return
	}
	as := in.types[0]
	var r *big.Int
	switch in.op {
	case "shl", "shr", "shf", "bfe", "bfi", "bmsk", "prmt", "lop3", "and", "or", "xor", "not", "cnot", "popc", "clz", "bfind", "brev", "szext", "fns":
		w.write(t, &in.args[0], w.bitwise(in, t))
		return
	case "dp4a", "dp2a":
		w.write(t, &in.args[0], w.dot(in, t))
		return
	case "mad":
		if in.mods["wide"] {
			twice := typ{as.kind, 2 * as.bits}
			c := whole(w.read(t, &in.args[3], twice), twice)
			r = c.Add(c, product(in, w.sources(in, t, as)))
			break
		}
		fallthrough
	default:
		r = arithmetic(in, w.sources(in, t, as))
	}
	if in.mods["sat"] {
		r = clamp(r, as)
	}
	if in.mods["relu"] && r.Sign() < 0 {
		r = new(big.Int)
	}
	bits := as.bits
	if in.mods["wide"] {
		bits *= 2
	}
	w.write(t, &in.args[0], wrap(r, bits))
}

// halves executes an instruction on the two integers of 16 bits in each operand.
func (w *warp) halves(in *inst, t *thread) {
	var d uint64
	for at := 0; at < 32; at += 16 {
		var list []*big.Int
		for i := range in.args[1:] {
			list = append(list, whole(w.read(t, &in.args[i+1], typ{'b', 32})>>at, in.types[0]))
		}
		r := arithmetic(in, list)
		if in.mods["relu"] && r.Sign() < 0 {
			r = new(big.Int)
		}
		d |= wrap(r, 16) << at
	}
	w.write(t, &in.args[0], d)
}

func arithmetic(in *inst, a []*big.Int) *big.Int {
	z := new(big.Int)
	switch in.op {
	case "add":
		return z.Add(a[0], a[1])
	case "sub":
		return z.Sub(a[0], a[1])
	case "mul", "mul24":
		return product(in, a)
	case "mad", "mad24":
		return z.Add(product(in, a), a[2])
	case "sad":
		return z.Add(z.Abs(z.Sub(a[0], a[1])), a[2])
	case "div":
		if a[1].Sign() == 0 {
			return big.NewInt(-1)
		}
		return z.Quo(a[0], a[1])
	case "rem":
		if a[1].Sign() == 0 {
			return a[0]
		}
		return z.Rem(a[0], a[1])
	case "min":
		return either(a[0].Cmp(a[1]) < 0, a[0], a[1])
	case "max":
		return either(a[0].Cmp(a[1]) > 0, a[0], a[1])
	case "abs":
		return z.Abs(a[0])
	case "neg":
		return z.Neg(a[0])
	}
	unknown(in)
	return nil
}

// product returns the low or the high half of a product, or all of it.
func product(in *inst, a []*big.Int) *big.Int {
	as := in.types[0]
	x, y := a[0], a[1]
	if in.op == "mul24" || in.op == "mad24" {
		low := typ{as.kind, 24}
		x, y = whole(wrap(x, 24), low), whole(wrap(y, 24), low)
		p := new(big.Int).Mul(x, y)
		if in.mods["hi"] {
			p.Rsh(p, 16)
		}
		return whole(wrap(p, 32), as)
	}
	p := new(big.Int).Mul(x, y)
	switch {
	case in.mods["hi"]:
		p.Rsh(p, uint(as.bits))
	case in.mods["lo"]:
		p.SetUint64(wrap(p, as.bits))
	}
	return p
}

// carried executes an instruction that reads or writes the condition code. A subtraction adds the complement.
func (w *warp) carried(in *inst, t *thread) {
	as := typ{in.types[0].kind, in.types[0].bits}
	a := w.sources(in, t, as)
	x, y, carry := a[0], a[1], 0
	switch in.op {
	case "mad", "madc":
		x, y = product(in, a), a[2]
	case "sub", "subc":
		y, carry = new(big.Int).Not(y), 1
	}
	if in.op[len(in.op)-1] == 'c' {
		carry = either(t.carry, 1, 0)
	}
	sum := new(big.Int).SetUint64(wrap(x, as.bits))
	sum.Add(sum, new(big.Int).SetUint64(wrap(y, as.bits)))
	sum.Add(sum, big.NewInt(int64(carry)))
	w.write(t, &in.args[0], wrap(sum, as.bits))
	if in.mods["cc"] {
		t.carry = sum.Bit(as.bits) == 1
	}
}

// bitwise executes an instruction on single bits, one by one.
func (w *warp) bitwise(in *inst, t *thread) uint64 {
	n := in.types[0].bits
	src := make([]uint64, 4)
	for i := 1; i < len(in.args); i++ {
		as := in.types[0]
		switch in.op {
		case "shl", "shr":
			as = either(i == 2, typ{'u', 32}, as)
		case "bfe":
			as = either(i >= 2, typ{'u', 32}, as)
		case "bfi":
			as = either(i >= 3, typ{'u', 32}, as)
		}
		src[i-1] = w.read(t, &in.args[i], as)
	}
	a, b, c := src[0], src[1], src[2]
	at := func(v uint64, i uint64) uint64 { // bit i, 0 beyond the width
		if i >= uint64(n) {
			return 0
		}
		return v >> i & 1
	}
	each := func(f func(i uint64) uint64) (r uint64) {
		for i := range uint64(n) {
			r |= f(i) & 1 << i
		}
		return r
	}
	signed := in.types[0].kind == 's'
	top := at(a, uint64(n-1))
	switch in.op {
	case "and":
		return each(func(i uint64) uint64 { return at(a, i) & at(b, i) })
	case "or":
		return each(func(i uint64) uint64 { return at(a, i) | at(b, i) })
	case "xor":
		return each(func(i uint64) uint64 { return at(a, i) ^ at(b, i) })
	case "not":
		return each(func(i uint64) uint64 { return 1 - at(a, i) })
	case "cnot":
		return bit(a == 0)
	case "shl":
		return each(func(i uint64) uint64 {
			if i < b {
				return 0
			}
			return at(a, i-b)
		})
	case "shr":
		return each(func(i uint64) uint64 {
			if signed && i+b >= uint64(n) {
				return top
			}
			return at(a, i+b)
		})
	case "shf":
		return funnel(in, a, b, c)
	case "bfe":
		return extract(in, a, b&255, c&255)
	case "bfi":
		pos, length := c&255, src[3]&255
		return each(func(i uint64) uint64 {
			if i >= pos && i < pos+length {
				return at(a, i-pos)
			}
			return at(b, i)
		})
	case "bmsk":
		if in.mods["wrap"] {
			a, b = a&31, b&31
		}
		return each(func(i uint64) uint64 { return bit(i >= a && i-a < b) })
	case "szext":
		if in.mods["wrap"] {
			b &= 31
		}
		return each(func(i uint64) uint64 {
			if i < b {
				return at(a, i)
			}
			return bit(signed && b > 0) * at(a, b-1)
		})
	case "fns":
		return nthSet(a, b, c)
	case "prmt":
		return permute(in, a, b, c)
	case "lop3":
		return each(func(i uint64) uint64 { return src[3] >> (at(a, i)*4 + at(b, i)*2 + at(c, i)) })
	case "brev":
		return each(func(i uint64) uint64 { return at(a, uint64(n-1)-i) })
	case "popc":
		ones := uint64(0)
		for i := range uint64(n) {
			ones += at(a, i)
		}
		return ones
	case "clz":
		for i := range uint64(n) {
			if at(a, uint64(n-1)-i) == 1 {
				return i
			}
		}
		return uint64(n)
	case "bfind":
		wanted := uint64(1)
		if signed {
			wanted = 1 - top
		}
		for i := range uint64(n) {
			if at(a, uint64(n-1)-i) == wanted {
				return either(in.mods["shiftamt"], i, uint64(n-1)-i)
			}
		}
		return 0xffffffff
	}
	unknown(in)
	return 0
}

// nthSet returns the place of a bit that is set: the n-th from base on, that at base
// itself if n is 0, upwards if n is positive.
func nthSet(mask, base, n uint64) uint64 {
	count, step := int64(int32(n)), int64(1)
	if count < 0 {
		count, step = -count, -1
	}
	for at := int64(base); at >= 0 && at < 32; at += step {
		if mask>>at&1 == 0 {
			if count == 0 {
				break
			}
			continue
		}
		if count <= 1 {
			return uint64(at)
		}
		count--
	}
	return 0xffffffff
}

// funnel shifts b:a and returns its upper word (left) or lower word (right).
func funnel(in *inst, a, b, c uint64) uint64 {
	n := uint(min(c, 32))
	if in.mods["wrap"] {
		n = uint(c % 32)
	}
	pair := new(big.Int).SetUint64(b<<32 | a)
	if in.mods["r"] {
		return wrap(pair.Rsh(pair, n), 32)
	}
	pair.Lsh(pair, n)
	return wrap(pair.Rsh(pair, 32), 32)
}

// extract implements bfe as the manual's text specifies.
func extract(in *inst, a, pos, length uint64) (d uint64) {
	msb := uint64(in.types[0].bits - 1)
	sign := uint64(0)
	if in.types[0].kind == 's' && length != 0 {
		sign = a >> min(pos+length-1, msb) & 1
	}
	for i := range msb + 1 {
		bit := sign
		if i < length && pos+i <= msb {
			bit = a >> (pos + i) & 1
		}
		d |= bit << i
	}
	return d
}

func permute(in *inst, a, b, c uint64) (d uint64) {
	byteOf := func(i uint64) uint64 { return (b<<32 | a) >> (8 * (i & 7)) & 0xff }
	for i := range uint64(4) {
		k := c & 3
		var v uint64
		switch {
		case in.mods["f4e"]:
			v = byteOf(k + i)
		case in.mods["b4e"]:
			v = byteOf(k - i)
		case in.mods["rc8"]:
			v = byteOf(k)
		case in.mods["ecl"]:
			v = byteOf(max(i, k))
		case in.mods["ecr"]:
			v = byteOf(min(i, k))
		case in.mods["rc16"]:
			v = byteOf(i&1 + 2*(k&1))
		default:
			s := c >> (4 * i) & 15
			v = byteOf(s)
			if s >= 8 {
				v = (v >> 7) * 0xff
			}
		}
		d |= v << (8 * i)
	}
	return d
}

// dot is dp4a and dp2a: a sum of products of parts.
func (w *warp) dot(in *inst, t *thread) uint64 {
	ta, tb := in.types[0], in.types[1]
	a, b := w.read(t, &in.args[1], ta), w.read(t, &in.args[2], tb)
	sum := whole(w.read(t, &in.args[3], ta), ta)
	n, bitsA, first := 4, 8, 0
	if in.op == "dp2a" {
		n, bitsA, first = 2, 16, either(in.mods["hi"], 2, 0)
	}
	for i := range n {
		x := whole(a>>(bitsA*i), typ{ta.kind, bitsA})
		y := whole(b>>(8*(first+i)), typ{tb.kind, 8})
		sum.Add(sum, x.Mul(x, y))
	}
	return wrap(sum, 32)
}

// mov executes mov, which copies, splits or joins registers.
func (w *warp) mov(in *inst, t *thread) {
	d, s, as := &in.args[0], &in.args[1], in.types[0]
	switch {
	case as.kind == 'p':
		w.write(t, d, bit(w.holds(t, s)))
	case s.kind == vector:
		part := as.bits / len(s.list)
		var v uint64
		for i := range s.list {
			v |= w.read(t, &s.list[i], typ{'b', part}) << (part * i)
		}
		w.write(t, d, v)
	case d.kind == vector:
		part := as.bits / len(d.list)
		v := w.read(t, s, as)
		for i := range d.list {
			w.write(t, &d.list[i], cut(v>>(part*i), part))
		}
	default:
		w.write(t, d, w.read(t, s, as))
	}
}
