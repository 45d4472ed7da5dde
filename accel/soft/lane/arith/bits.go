package arith

import "math"

// FloatOf returns the f32 with the lower 32 bits.
func FloatOf(x uint64) float32 { return math.Float32frombits(uint32(x)) }

// BitsOf is the inverse of FloatOf.
func BitsOf(x float32) uint64 { return uint64(math.Float32bits(x)) }

// Less compares integers of 32 bits, or wide ones of 64.
func Less(a, b uint64, signed, wide bool) bool {
	switch {
	case signed && wide:
		return int64(a) < int64(b)
	case signed:
		return int32(a) < int32(b)
	}
	return a < b
}
