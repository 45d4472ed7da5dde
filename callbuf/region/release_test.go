package region

import (
	"strings"
	"testing"
)

func TestRelease(t *testing.T) {
	mem := make([]byte, ControlBytes)
	g, h := NewGuest(mem), NewHost(mem)
	if got := h.AgentRelease(); got != "" {
		t.Errorf("an agent that said nothing: %q", got)
	}
	g.SetRelease("8c50278-dirty")
	h.SetRelease("1f00ba5")
	if got := h.AgentRelease(); got != "8c50278-dirty" {
		t.Errorf("agent: %q", got)
	}
	if got := g.HostRelease(); got != "1f00ba5" {
		t.Errorf("host: %q", got)
	}
	g.SetRelease(strings.Repeat("x", 1000))
	if got := h.AgentRelease(); got != strings.Repeat("x", releaseBytes) {
		t.Errorf("a long one: %q", got)
	}
	if got := g.HostRelease(); got != "1f00ba5" {
		t.Errorf("the host's beside a long one: %q", got)
	}
}

// Any name of a guest can be printed.
func FuzzRelease(f *testing.F) {
	f.Add([]byte("v1\n"))
	f.Add([]byte("\x1b[2J\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		mem := make([]byte, ControlBytes)
		copy(mem[offAgentRelease:offAgentRelease+releaseBytes], b)
		for _, c := range NewHost(mem).AgentRelease() {
			if c <= ' ' || c >= 0x7f {
				t.Fatalf("%q", c)
			}
		}
	})
}
