package test

import (
	"fmt"
	"strings"
	"testing"
)

// The driver writes kernel output to its process's standard output; the program's own receives it when the program
// synchronises.
func TestPrintingOnNVIDIA(t *testing.T) {
	h := startNVIDIA(t, oneDomain)
	p := program(t, "printing")
	for _, c := range []struct{ part, out string }{
		{"leave", "begin\n0\n1\n2\nmiddle\n0 0\n0 1\nend\n"},
		{"nothing", "end\n"},
	} {
		t.Run(c.part, func(t *testing.T) {
			if out, _ := printed(t, h, p, c.part); out != c.out {
				t.Errorf("printed %q, want %q", out, c.out)
			}
		})
	}
	t.Run("points", func(t *testing.T) {
		out, _ := printed(t, h, p, "points")
		for i := range 8 {
			if want := fmt.Sprintf("before %d\ndevice 0 0\nafter %[1]d\n", i); !strings.Contains(out, want) {
				t.Errorf("no %q in %q", want, out)
			}
		}
	})
}
