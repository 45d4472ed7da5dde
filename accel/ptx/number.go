package ptx

import (
	"math"
	"strconv"
	"strings"
)

// immediate reads a literal. A float becomes the bits of a float64, or, if
// written as 0f…, keeps its float32 bits beside it so that NaN payloads survive.
func immediate(s string) (Operand, bool) {
	if len(s) == 10 && s[0] == '0' && (s[1] == 'f' || s[1] == 'F') {
		b, err := strconv.ParseUint(s[2:], 16, 32)
		return Operand{Kind: Float32, Imm: b}, err == nil
	}
	if len(s) == 18 && s[0] == '0' && (s[1] == 'd' || s[1] == 'D') {
		b, err := strconv.ParseUint(s[2:], 16, 64)
		return Operand{Kind: Float64, Imm: b}, err == nil
	}
	if v, ok := integer(s); ok {
		return Operand{Kind: Integer, Imm: v}, true
	}
	if strings.ContainsAny(s, ".eE") && !strings.ContainsAny(s, "xXpP_") {
		f, err := strconv.ParseFloat(s, 64)
		return Operand{Kind: Float64, Imm: math.Float64bits(f)}, err == nil
	}
	return Operand{}, false
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
