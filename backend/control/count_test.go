package control

import "testing"

func TestCount(t *testing.T) {
	for _, test := range []struct {
		n          int
		noun, want string
	}{{0, "guest", "0 guests"}, {1, "guest process", "1 guest process"}, {2, "guest process", "2 guest processes"}} {
		if got := Count(test.n, test.noun); got != test.want {
			t.Errorf("got %q, want %q", got, test.want)
		}
	}
}
