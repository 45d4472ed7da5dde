package sched

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"pegasus/configs"
	"pegasus/policies"
	"pegasus/vcpu"
)

// Entitlements and States return for each domain what Standing does.
func TestEntitlements(t *testing.T) {
	a := busyAccelerator(t, "accc", "one", "two", "three")
	a.members[0].shares.Credits = 512
	a.members[2].paused = true
	var sum float64
	all, states := a.Entitlements(), a.States()
	for _, m := range a.members {
		if state, want := a.Standing(m); all[m.Domain] != want || states[m.Domain] != state {
			t.Errorf("%s: %s, %v, want %s, %v", m.Domain, states[m.Domain], all[m.Domain], state, want)
		}
		sum += all[m.Domain]
	}
	if math.Abs(sum-1) > 1e-9 {
		t.Errorf("the parts add up to %v", sum)
	}
}

// BenchmarkPresent is how long the loop's lock is held for a reading of 50 domains.
func BenchmarkPresent(b *testing.B) {
	a, err := New(Options{Settings: configs.Default().Accelerators[0]})
	if err != nil {
		b.Fatal(err)
	}
	for i := range 50 {
		a.members = append(a.members, &Attachment{ID: vcpu.ID(i + 1), Domain: fmt.Sprint("d", i), shares: vcpu.Domain{Credits: 256}})
	}
	for b.Loop() {
		a.present()
	}
}

// An explanation for a domain names the policy once.
func TestExplanationNamesPolicyOnce(t *testing.T) {
	for _, policy := range policies.Names() {
		for _, mode := range []string{"production", "paper"} {
			c := configs.Default().Accelerators[0]
			c.Policy, c.Mode = policy, mode
			a := quietAccelerator(t, c)
			attachPage(t, a, "a")
			lines := a.Explain(a.members[0])
			if text := lines[len(lines)-1]; !strings.HasPrefix(text, "policy "+policy) || strings.Contains(text, policy+": "+policy) {
				t.Errorf("%s, %s: got %q", policy, mode, text)
			}
		}
	}
}
