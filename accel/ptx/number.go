package ptx

import (
	"math"
	"strconv"
	"strings"
)

// immediate parses a literal. A float becomes the bits of a float64, or, if written as 0f…, keeps its float32 bits
// beside it so that NaN payloads survive.
func immediate(s string) (c constantValue, ok bool) {
	if len(s) == 10 && s[0] == '0' && s[1]|0x20 == 'f' {
		b, ok := hexadecimal(s[2:])
		return constantValue{Kind: Float32, Imm: b}, ok
	}
	if len(s) == 18 && s[0] == '0' && s[1]|0x20 == 'd' {
		b, ok := hexadecimal(s[2:])
		return constantValue{Kind: Float64, Imm: b}, ok
	}
	if v, ok := integer(s); ok {
		return constantValue{Kind: Integer, Imm: v, unsigned: int64(v) < 0 || s[len(s)-1]|0x20 == 'u'}, true
	}
	if strings.ContainsAny(s, ".eE") && !strings.ContainsAny(s, "xXpP_") {
		f, err := strconv.ParseFloat(s, 64)
		return constantValue{Kind: Float64, Imm: math.Float64bits(f)}, err == nil
	}
	return c, false
}

// hexadecimal reads up to 16 digits.
func hexadecimal(s string) (v uint64, ok bool) {
	for i := range len(s) {
		c := s[i]
		switch {
		case digit(c):
			c -= '0'
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			c = c | 0x20 - 'a' + 10
		default:
			return 0, false
		}
		v = v<<4 | uint64(c)
	}
	return v, true
}

// integer reads a decimal, hexadecimal, octal or binary number with an optional U.
func integer(s string) (uint64, bool) {
	s = strings.TrimRight(s, "uU")
	if strings.Contains(s, "_") {
		return 0, false
	}
	if len(s) > 1 && s[0] == '0' && digit(s[1]) {
		v, err := strconv.ParseUint(s, 8, 64)
		return v, err == nil
	}
	v, err := strconv.ParseUint(s, 0, 64)
	return v, err == nil
}

// Bits converts an immediate to the bits of a value of type t, zero-extended.
func (o *Operand) Bits(t Type) uint64 {
	switch t {
	case F32:
		switch o.Kind {
		case Float64:
			return uint64(math.Float32bits(float32(math.Float64frombits(o.Imm))))
		case Integer:
			return uint64(math.Float32bits(float32(int64(o.Imm))))
		}
		return o.Imm
	case F64:
		switch o.Kind {
		case Float32:
			return math.Float64bits(float64(math.Float32frombits(uint32(o.Imm))))
		case Integer:
			return math.Float64bits(float64(int64(o.Imm)))
		}
		return o.Imm
	}
	if n := t.Size(); n < 8 {
		return o.Imm & (1<<(8*n) - 1)
	}
	return o.Imm
}
