package exec

import "testing"

// Rounding to f16 returns the same f16 for the value of each f16, and goes to the even one from the middle.
func TestHalves(t *testing.T) {
	for b := range 1 << 16 {
		h := half(uint16(b))
		if h != h {
			continue
		}
		if got := toHalf(float32(h)); got != uint16(b) {
			t.Fatalf("%#x is %v, which is stored as %#x", b, h, got)
		}
	}
	for in, want := range map[float32]uint16{1 + 1./2048: 0x3c00, 1 + 3./2048: 0x3c02, 65519: 0x7bff, 65520: 0x7c00, 2047.0 / 2 / (1 << 24): 0x0400, 1. / (1 << 25): 0, 1.5 / (1 << 25): 1} {
		if got := toHalf(in); got != want {
			t.Errorf("%v is stored as %#x, want %#x", in, got, want)
		}
	}
}
