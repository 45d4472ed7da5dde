package test

import "testing"

// The papers' programs check their own results; here at small sizes, and at sizes that fill no tile or block.
func TestPapersPrograms(t *testing.T) {
	h := startHost(t, oneDomain)
	for _, c := range []struct{ name, size, odd string }{
		{"montecarlo", "8", "1"},
		{"binomial", "9", "1"},
		{"image", "64", "17"},
		{"mriq", "512", "77"},
		{"coulomb", "24", "5"},
		{"tpacf", "200", "3"},
		{"rpes", "5", "1"},
		{"picser", "128", "3"},
		{"lud", "80", "1"},
		{"heartwall", "6", "1"},
		{"srad", "64", "3"},
		{"frames", "1", "2"},
		{"bomb", "16", "1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, size := range []string{c.size, c.odd} {
				t.Logf("%s", succeed(t, h.bench("one", c.name, "--size", size, "--iterations", "3", "--pause-ms", "0.1", "--json")))
			}
			succeed(t, h.bench("one", c.name, "--size", c.odd, "--iterations", "5", "--queue", "2", "--copy-mb", "0.1"))
		})
	}
}
