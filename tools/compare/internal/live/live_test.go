package live

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"pegasus/sim"
)

const ms = time.Millisecond

// A charge counts for the windows in which the engine was held, which end at its report.
func TestUse(t *testing.T) {
	text := `{"at":5000000000,"choice":{"policy":"lag","options":{}}}
{"at":5000000000,"event":{"kind":"attach","domain":{"ID":3}}}
{"at":5000000000,"event":{"kind":"attach","domain":{"ID":7}}}
{"at":5010000000,"event":{"kind":"charge","domain":{"ID":3},"used":{"Compute":15000000}}}
{"at":5025000000,"event":{"kind":"charge","domain":{"ID":7},"used":{"Compute":10000000,"Copy":2000000}}}
{"at":5027000000,"ready":true}
{"at":5040000000,"event":{"kind":"charge","domain":{"ID":3},"used":{"Compute":15000000}}}`
	tp := &receivedTrace{names: []string{"a", "b"}}
	for line := range strings.Lines(text) {
		tp.lines = append(tp.lines, json.RawMessage(line))
	}
	u, err := tp.use(0, 20*ms, 2)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what string
		got  time.Duration
		want time.Duration
	}{
		{"a in the first", u.compute[0]["a"], 10 * ms}, {"b in the first", u.compute[0]["b"], 5 * ms},
		{"b in the second", u.compute[1]["b"], 5 * ms}, {"a in the second", u.compute[1]["a"], 15 * ms},
		{"copies of b", u.copy[1]["b"], 2 * ms}, {"none before", u.copy[0]["b"], 0},
	} {
		if c.got != c.want {
			t.Errorf("%s: %v, not %v", c.what, c.got, c.want)
		}
	}

	domains := []sim.Domain{{Name: "a", Attributes: sim.Attributes{Bandwidth: 600}}, {Name: "b", Attributes: sim.Attributes{Bandwidth: 400}}}
	m := measure(domains, u, nil, map[string][]Report{"a": {{Launches: 10, Seconds: 2, RoundP85: 3e6}, {RoundP85: 2e6, Seconds: 1}}})
	for _, c := range []struct {
		domain, metric string
		want           float64
	}{
		{"a", "share", 62.5}, {"a", "part", (10.0/15 + 15.0/22) * 50}, {"a", "error", (10 + 15.0) / 2}, {"a", "error_max", 15},
		{"b", "copy", 5}, {"a", "rate", 5}, {"a", "latency_p85", 3}, {"", "run_p85", 1.5}, {"", "error_max", 15},
	} {
		if got := m[c.domain][c.metric]; math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%s.%s is %g, not %g", c.domain, c.metric, got, c.want)
		}
	}
	tp.names = tp.names[:1]
	if _, err := tp.use(0, 20*ms, 2); err == nil {
		t.Error("a domain without a name was taken")
	}
}

// The prediction takes a workload's times from its program, and their division from the scenario.
func TestAloneWorkload(t *testing.T) {
	a := Alone{Kernel: 12 * ms, Period: 20 * ms}
	if w := a.workload(sim.Workload{CPU: ms}); w.Kernel != 12*ms || w.CPU != 8*ms || w.Pre != 0 {
		t.Errorf("one call: %+v", w)
	}
	if w := a.workload(sim.Workload{Calls: 4, CPU: ms, Pre: 2 * ms}); w.Kernel != 3*ms || w.CPU != ms || w.Pre != 7*ms {
		t.Errorf("four calls: %+v", w)
	}
	if w := (Alone{Kernel: 12 * ms, Period: 11 * ms}).workload(sim.Workload{CPU: ms}); w.CPU != 0 {
		t.Errorf("no gap: %+v", w)
	}
}

// The bytes that calls copy stay as in the scenario, and the prediction gets the bandwidth of the program.
// Without such bytes in the scenario, copies are part of the kernel time.
func TestAloneCopies(t *testing.T) {
	a := Alone{Kernel: 9 * ms, Copy: 4 * ms, Period: 14 * ms}
	copies := sim.Workload{CallIn: 8e6, CallOut: 12e6}
	if w, b := a.workload(copies), a.bandwidth(copies); w.Kernel != 9*ms || w.CPU != ms || w.CallIn != 8e6 || b != 5e9 {
		t.Errorf("%+v at %g bytes/s", w, b)
	}
	if w, b := a.workload(sim.Workload{}), a.bandwidth(sim.Workload{}); w.Kernel != 13*ms || w.CPU != ms || b != 0 {
		t.Errorf("%+v at %g bytes/s", w, b)
	}
}

// CPU credits become the nice value with the same weight beside the others of a scenario.
func TestNiceness(t *testing.T) {
	for credits, want := range map[int]int{0: 0, 256: 0, 132: 3, 84: 5, 68: 6, 4: 19} {
		if n, err := niceness(&sim.Domain{Attributes: sim.Attributes{CPUCredits: credits}}); err != nil || n != want {
			t.Errorf("%d credits: niceness %d, %v, not %d", credits, n, err, want)
		}
	}
	if _, err := niceness(&sim.Domain{Name: "a", Attributes: sim.Attributes{CPUCredits: 512}}); err == nil {
		t.Error("more than niceness 0 weighs")
	}
}

// The size is found for programs whose time grows unlike it, in few tries, or the best of the possible ones.
func TestFindSize(t *testing.T) {
	for _, c := range []struct {
		name string
		want time.Duration
		took func(size int) time.Duration
		near float64
	}{
		{"linear", 25 * ms, func(n int) time.Duration { return time.Duration(n) * 300 * time.Microsecond }, 0.04},
		{"cubic", 30 * ms, func(n int) time.Duration { return time.Duration(n*n*n) * 50 * time.Nanosecond }, 0.04},
		{"with a part that stays", 2 * ms, func(n int) time.Duration { return ms + time.Duration(n)*7*time.Microsecond }, 0.04},
		{"in steps", ms, func(n int) time.Duration { return time.Duration((n+15)/16*16) * 15 * time.Microsecond }, 0.1},
		{"coarse", 700 * time.Microsecond, func(n int) time.Duration { return time.Duration(n) * 400 * time.Microsecond }, 0.25},
		{"too long at 1", ms, func(n int) time.Duration { return time.Duration(n) * 5 * ms }, 4},
		{"always the same", ms, func(int) time.Duration { return 2 * ms }, 1},
	} {
		tries := 0
		size, err := findSize(c.want, func(n int) (time.Duration, error) {
			tries++
			return c.took(n), nil
		})
		if err != nil || size < 1 || tries > sizeTries {
			t.Fatalf("%s: %d after %d tries, %v", c.name, size, tries, err)
		}
		if off := math.Abs(float64(c.took(size)-c.want)) / float64(c.want); off > c.near {
			t.Errorf("%s: %d takes %v after %d tries, %v is wanted", c.name, size, c.took(size), tries, c.want)
		}
	}
	if _, err := findSize(0, nil); err == nil {
		t.Error("a size for no time at all")
	}
}
