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

// A charge counts for the windows in which the engine was held, which end where it
// is told.
func TestUse(t *testing.T) {
	text := `{"at":5000000000,"choice":{"policy":"lag","options":{}}}
{"at":5000000000,"event":{"kind":"attach","domain":{"ID":3}}}
{"at":5000000000,"event":{"kind":"attach","domain":{"ID":7}}}
{"at":5010000000,"event":{"kind":"charge","domain":{"ID":3},"used":{"Compute":15000000}}}
{"at":5025000000,"event":{"kind":"charge","domain":{"ID":7},"used":{"Compute":10000000,"Copy":2000000}}}
{"at":5027000000,"ready":true}
{"at":5040000000,"event":{"kind":"charge","domain":{"ID":3},"used":{"Compute":15000000}}}`
	tp := &tape{names: []string{"a", "b"}}
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

	domains := []sim.Domain{{Name: "a", Bandwidth: 600}, {Name: "b", Bandwidth: 400}}
	m := measure(domains, u, nil, map[string][]Report{"a": {{Launches: 10, Seconds: 2}}})
	for _, c := range []struct {
		domain, metric string
		want           float64
	}{
		{"a", "share", 62.5}, {"a", "part", (10.0/15 + 15.0/22) * 50}, {"a", "error", (10 + 15.0) / 2}, {"a", "error_max", 15},
		{"b", "copy", 5}, {"a", "rate", 5}, {"", "error_max", 15},
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

// The prediction takes a workload's times from its program, and how they are divided
// from the scenario.
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
