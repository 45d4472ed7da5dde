package main

import (
	"math"
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

// What credits and policies come to is for the policies' own tests to show; here
// that the daemon's loops carry it out. Margins are wide: the machine may be busy.
func TestShares(t *testing.T) {
	h := newHost(t, threeDomains)
	names := []string{"d1", "d2", "d3"}
	for _, name := range names {
		for range 2 {
			g := h.guest(name)
			g.must("context")
			go g.tell("busy 60s")
		}
	}
	h.eventually("all are at work", func() bool {
		return h.domain("d1").GPU > 0 && h.domain("d2").GPU > 0 && h.domain("d3").GPU > 0
	})
	expect := func(policy, mode string, want [3]float64) {
		t.Helper()
		if err := h.call(control.MethodPolicy, control.PolicyParams{Name: policy, Mode: mode}, nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(300 * time.Millisecond) // a turn or two of the new policy
		got := h.shares(names, 2*time.Second)
		for i := range got {
			if math.Abs(got[i]-want[i]) > 0.06 {
				t.Errorf("%s, %s: shares %.3f, want %.3f", policy, mode, got, want)
				break
			}
		}
		t.Logf("%s, %s: shares %.3f", policy, mode, got)
	}
	expect("accc", "production", [3]float64{1. / 7, 2. / 7, 4. / 7})
	expect("rr", "production", [3]float64{1. / 3, 1. / 3, 1. / 3})
	expect("accc", "paper", [3]float64{1. / 7, 2. / 7, 4. / 7})
	if err := h.call(control.MethodSet, control.SetParams{Domain: "d1", Settings: map[string]string{"credits": "1024"}}, nil); err != nil {
		t.Fatal(err)
	}
	expect("accc", "production", [3]float64{1024. / 2560, 512. / 2560, 1024. / 2560})
}

// shares is which part of the time used, over a while, was each domain's.
func (h *host) shares(names []string, over time.Duration) (got [3]float64) {
	var before [3]int64
	for i, name := range names {
		before[i] = h.domain(name).GPU
	}
	time.Sleep(over)
	var sum float64
	for i, name := range names {
		got[i] = float64(h.domain(name).GPU - before[i])
		sum += got[i]
	}
	for i := range got {
		got[i] /= sum
	}
	return got
}
