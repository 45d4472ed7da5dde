package test

import (
	"fmt"
	"strings"
	"testing"

	"pegasus/frontend"
)

func declare(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "[[domain]]\nname = \"d%d\"\n", i+1)
	}
	return b.String()
}

const twoAccelerators = `
[[accelerator]]
name = "a0"
type = "soft"
cores = 1
memory = "512MiB"
max_domains = %d
[[accelerator]]
name = "a1"
type = "soft"
cores = 1
memory = "512MiB"
max_domains = %d
`

// Equal domains are placed on equal accelerators in turn.
func TestPlacement(t *testing.T) {
	h := startHost(t, fmt.Sprintf(twoAccelerators, 64, 64)+declare(4))
	for i, want := range []string{"a0", "a1", "a0", "a1"} {
		name := fmt.Sprintf("d%d", i+1)
		load(t, h.dial(name)).works()
		if got := h.domains()[name].Accelerator; got != want {
			t.Errorf("domain %d landed on %s, want %s", i+1, got, want)
		}
	}
}

// A full accelerator is skipped; when all are full, the guest gets an error.
func TestFullAcceleratorIsSkipped(t *testing.T) {
	t.Parallel()
	h := startHost(t, fmt.Sprintf(twoAccelerators, 1, 2)+declare(4))
	for i, want := range []string{"a0", "a1", "a1"} {
		name := fmt.Sprintf("d%d", i+1)
		load(t, h.dial(name)).works()
		if got := h.domains()[name].Accelerator; got != want {
			t.Errorf("domain %d landed on %s, want %s", i+1, got, want)
		}
	}
	if c, err := frontend.Dial(h.dir + "/domains/d4.sock"); err == nil {
		c.Close()
		t.Error("a fourth domain was placed on full accelerators")
	}
}

// Sixty-four domains share one accelerator.
func TestSixtyFourDomains(t *testing.T) {
	const n = 64
	h := startHost(t, "[[accelerator]]\nname = \"a0\"\ntype = \"soft\"\nmemory = \"1GiB\"\n"+declare(n))
	var guests []loaded
	for i := range n {
		guests = append(guests, load(t, h.dial(fmt.Sprintf("d%d", i+1))))
	}
	for _, g := range guests {
		g.works()
	}
	if got := len(h.accelerators()[0].Domains); got != n {
		t.Errorf("the accelerator has %d domains, want %d", got, n)
	}
}
