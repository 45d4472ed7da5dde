package reference

import (
	"math/big"
	"strconv"
	"strings"
)

// read returns the bits of an operand taken as a value of type t.
func (w *warp) read(t *thread, o *operand, as typ) uint64 {
	switch o.kind {
	case register:
		return cut(t.regs[o.reg], as.bits)
	case special:
		return cut(w.specialValue(t, o.text), as.bits)
	case symbol:
		v, ok := w.vars[o.text]
		if !ok {
			fail("no variable %s", o.text)
		}
		return uint64(v.offset)
	case literal:
		return literalBits(o.text, as)
	}
	fail("operand %s is no value", o.text)
	return 0
}

// holds returns a predicate operand.
func (w *warp) holds(t *thread, o *operand) bool {
	if o.kind == literal {
		return o.text != "0"
	}
	return (t.regs[o.reg] != 0) != o.not
}

// write sets a register; a longer value is truncated.
func (w *warp) write(t *thread, o *operand, v uint64) {
	if o.kind == register {
		t.regs[o.reg] = cut(v, w.widths[o.reg])
	}
}

func cut(v uint64, bits int) uint64 {
	if bits >= 64 {
		return v
	}
	return v & (1<<bits - 1)
}

// literalBits reads 0f… and 0d…, decimal fractions, and whole numbers.
func literalBits(s string, as typ) uint64 {
	if strings.HasPrefix(s, "0f") || strings.HasPrefix(s, "0d") {
		v, err := strconv.ParseUint(s[2:], 16, 64)
		if err != nil {
			fail("literal %s", s)
		}
		return v
	}
	if v, err := strconv.ParseInt(s, 0, 64); err == nil {
		return cut(uint64(v), as.bits)
	}
	v, err := strconv.ParseUint(s, 0, 64)
	if err != nil {
		fail("literal %s", s)
	}
	return cut(v, as.bits)
}

// whole returns the integer that the bits mean in type t.
func whole(v uint64, t typ) *big.Int {
	z := new(big.Int).SetUint64(cut(v, t.bits))
	if t.kind == 's' && z.Bit(t.bits-1) == 1 {
		z.Sub(z, power(t.bits))
	}
	return z
}

func power(n int) *big.Int { return new(big.Int).Lsh(big.NewInt(1), uint(n)) }

// wrap returns a number modulo 2^bits.
func wrap(z *big.Int, bits int) uint64 {
	return new(big.Int).Mod(z, power(bits)).Uint64()
}

// clamp returns the nearest number that a type has.
func clamp(z *big.Int, t typ) *big.Int {
	low, high := new(big.Int), power(t.bits)
	if t.kind == 's' {
		high = power(t.bits - 1)
		low.Neg(high)
	}
	high.Sub(high, big.NewInt(1))
	if z.Cmp(low) < 0 {
		return low
	}
	if z.Cmp(high) > 0 {
		return high
	}
	return z
}

// format is a floating-point format: bits of the significand, the hidden one
// included, and the exponent of the last bit of the smallest number.
type format struct {
	bits, precision, least int
}

var (
	half   = format{16, 11, -24}
	bfloat = format{16, 8, -133}
	single = format{32, 24, -149}
	double = format{64, 53, -1074}
)

func (t typ) float() bool { return t.kind == 'f' || t.kind == 'g' }

func formatOf(t typ) format {
	switch {
	case t.kind == 'g':
		return bfloat
	case t.bits == 16:
		return half
	case t.bits == 64:
		return double
	}
	return single
}

func (f format) infinity() uint64 { return (1<<(f.bits-f.precision) - 1) << (f.precision - 1) }
func (f format) sign() uint64     { return 1 << (f.bits - 1) }

// nan returns the NaN that an instruction gives. That of f64 is open: programs make
// all of them this one.
func (f format) nan() uint64 {
	if f == double {
		return 0x7ff8000000000000
	}
	return f.sign() - 1
}

func (f format) isNaN(v uint64) bool     { return v&^f.sign() > f.infinity() }
func (f format) isInf(v uint64) bool     { return v&^f.sign() == f.infinity() }
func (f format) isZero(v uint64) bool    { return v&^f.sign() == 0 }
func (f format) negative(v uint64) bool  { return v&f.sign() != 0 }
func (f format) subnormal(v uint64) bool { return !f.isZero(v) && v&f.infinity() == 0 }
func (f format) zero(negative bool) uint64 {
	if negative {
		return f.sign()
	}
	return 0
}

func (f format) inf(negative bool) uint64 { return f.infinity() | f.zero(negative) }

// flush makes a subnormal number a zero of its sign.
func (f format) flush(v uint64) uint64 {
	if f.subnormal(v) {
		return f.zero(f.negative(v))
	}
	return v
}

// number returns the value of finite bits.
func (f format) number(v uint64) *big.Float {
	mantissa := v & (1<<(f.precision-1) - 1)
	exponent := int(v &^ f.sign() >> (f.precision - 1))
	if exponent > 0 {
		mantissa |= 1 << (f.precision - 1)
		exponent--
	}
	z := exact().SetMantExp(exact().SetUint64(mantissa), exponent+f.least)
	if f.negative(v) {
		z.Neg(z)
	}
	return z
}

// exact returns a number with so many bits that sums and products of any f64 values are exact.
func exact() *big.Float { return new(big.Float).SetPrec(4500) }

// round returns the bits of the number in the format that z rounds to by the mode. z is not zero.
func (f format) round(z *big.Float, mode string) uint64 {
	negative := z.Sign() < 0
	// The last bit of the result has this exponent.
	last := max(z.MantExp(nil)-f.precision, f.least)
	n := integral(exact().SetMantExp(exact().Abs(z), -last), magnitudeMode(mode, negative))
	// The hidden bit of n makes the exponent field one larger, as it should.
	v := new(big.Int).Add(n, new(big.Int).Lsh(big.NewInt(int64(last-f.least)), uint(f.precision-1)))
	if limit := new(big.Int).SetUint64(f.infinity()); v.Cmp(limit) >= 0 {
		v = limit
		if m := magnitudeMode(mode, negative); m == "down" {
			v.Sub(v, big.NewInt(1))
		}
	}
	return v.Uint64() | f.zero(negative)
}

// magnitudeMode returns where a mode moves the magnitude of a number.
func magnitudeMode(mode string, negative bool) string {
	switch {
	case mode == "rz", mode == "rm" && !negative, mode == "rp" && negative:
		return "down"
	case mode == "rm", mode == "rp":
		return "up"
	}
	return "near"
}

// integral rounds a number that is not negative to an integer: down, up, or
// to the nearest, of two the even one.
func integral(z *big.Float, mode string) *big.Int {
	n, _ := z.Int(nil)
	rest := exact().Sub(z, exact().SetInt(n))
	up := false
	switch half := rest.Cmp(big.NewFloat(0.5)); {
	case mode == "up":
		up = rest.Sign() > 0
	case mode == "near":
		up = half > 0 || half == 0 && n.Bit(0) == 1
	}
	if up {
		n.Add(n, big.NewInt(1))
	}
	return n
}

// saturate clamps to [0, 1]; NaN and -0 become +0.
func (f format) saturate(v uint64) uint64 {
	one := f.round(big.NewFloat(1), "rn")
	switch {
	case f.isNaN(v), f.negative(v):
		return 0
	case v > one:
		return one
	}
	return v
}
