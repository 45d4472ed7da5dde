package sim

import (
	"math"
	"testing"
)

// busyGuests are two machines on one CPU, with guests that always have other work to do.
const busyGuests = `
profile = "even"
time = "20s"
cpus = 1
cpu_scheduler = "eevdf"
accelerator = [{name = "gpu"}]
domain = [
  {name = "one", cpus = [0], workload = "coupled"},
  {name = "two", cpus = [0], workload = "coupled"},
]
plan = [
  {name = "XC", policy = "xc", mode = "paper"},
  {name = "Follow", policy = "xc", mode = "paper", cpu_follows = true},
  {name = "Unlike", policy = "xc", mode = "paper", set = {two = {cpu_credits = 768}}},
  {name = "UnlikeFollow", policy = "xc", mode = "paper", cpu_follows = true, set = {two = {cpu_credits = 768}}},
]
[profile_override]
spin = "1s"
[workload.coupled]
cpu = "1ms"
kernel = "500us"
`

// Where guests keep their virtual CPUs busy, more work is done in windows if the CPUs follow them, and the
// CPUs are shared as before.
func TestFollow(t *testing.T) {
	sc := scenario(t, busyGuests)
	var rate [4]float64
	for i := range sc.Plans {
		m := simulate(t, sc, i, 1).measure(sc)
		rate[i] = m["one"]["rate"] + m["two"]["rate"]
		part := 50.0
		if i >= 2 {
			part = 25
		}
		t.Logf("%s: %.1f + %.1f runs/s, CPU %.1f %% and %.1f %%", sc.Plans[i].Name, m["one"]["rate"], m["two"]["rate"], m["one"]["cpu"], m["two"]["cpu"])
		if math.Abs(m["one"]["cpu"]-part) > 1 {
			t.Errorf("%s: one has %.1f %% of the CPU, not %v", sc.Plans[i].Name, m["one"]["cpu"], part)
		}
	}
	if rate[1] < 1.2*rate[0] || rate[3] < 1.1*rate[2] {
		t.Errorf("runs per second: %v", rate)
	}
	if again := simulate(t, sc, 1, 1); again.hash != simulate(t, sc, 1, 1).hash {
		t.Error("it isn't the same twice")
	}
}
