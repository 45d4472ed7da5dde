package main

import (
	"testing"
	"time"

	"pegasus/backend/control"
)

const threeDomains = `
[[accelerator]]
name = "soft0"
memory = "256MiB"
cores = 1
tick = "5ms"
[[domain]]
name = "d1"
credits = 256
[[domain]]
name = "d2"
credits = 512
[[domain]]
name = "d3"
credits = 1024
`

// The exact effect of credits and policies is tested by the policies' own tests, and by those in test, which
// have the machine for themselves. These tests check that the daemon's loops carry out changes: every domain
// makes progress, and one with a larger part gets more.
func TestShares(t *testing.T) {
	h := newHost(t, threeDomains)
	for _, name := range []string{"d1", "d2", "d3"} {
		for range 2 {
			g := h.guest(name)
			g.must("context")
			go g.sendOrder("busy 1h")
		}
	}
	policy := func(name, mode string) {
		t.Helper()
		if _, err := h.api().SwitchPolicy(bg, control.PolicyParams{Name: name, Mode: mode}); err != nil {
			t.Fatal(err)
		}
	}
	rising := func(d map[string]time.Duration) bool {
		return d["d1"] < d["d2"] && d["d2"] < d["d3"] && 3*d["d1"] < 2*d["d3"]
	}
	policy("accc", "production")
	h.share("by credits", rising)
	policy("rr", "production")
	h.share("alike", func(d map[string]time.Duration) bool {
		return 2*max(d["d1"], d["d2"], d["d3"]) < 3*min(d["d1"], d["d2"], d["d3"])
	})
	policy("accc", "paper")
	h.share("by credits again", rising)
	if _, err := h.api().Set(bg, control.SetParams{Domain: "d1", Settings: map[string]string{"credits": "2048"}}); err != nil {
		t.Fatal(err)
	}
	h.share("by other credits", func(d map[string]time.Duration) bool {
		return d["d2"] < d["d3"] && d["d3"] < d["d1"] && 3*d["d2"] < 2*d["d1"]
	})
}

// share waits until the use of all domains from now on is sufficient, and fits.
func (h *host) share(what string, fits func(map[string]time.Duration) bool) {
	h.t.Helper()
	before, start := h.used(), time.Now()
	for {
		got := h.used()
		least := time.Hour
		for name := range got {
			got[name] -= before[name]
			least = min(least, got[name])
		}
		if least >= 50*time.Millisecond && fits(got) {
			h.t.Logf("%s: %v after %v", what, got, time.Since(start))
			return
		}
		if time.Since(start) > 2*soon {
			h.t.Fatalf("%s: in %v the domains used %v", what, time.Since(start), got)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// used returns the accelerator time of each domain.
func (h *host) used() map[string]time.Duration {
	h.t.Helper()
	c := h.api()
	defer c.Close() // callers poll
	all, err := c.Domains(bg)
	if err != nil {
		h.t.Fatal(err)
	}
	used := make(map[string]time.Duration)
	for _, d := range all {
		used[d.Name] = time.Duration(d.GPU)
	}
	return used
}
