package test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"pegasus/backend/control"
)

// The time line shows what happened: kernels of each domain within its windows, one
// window after another, as much accelerator time as the daemon counts, and the threads
// of each domain on the CPUs.
func TestTimeline(t *testing.T) {
	all := []sharer{{"one", 256, 3}, {"two", 256, 3}}
	h := startHost(t, shareConfig("rr", "production", all))
	for _, s := range all {
		h.run(s)
	}
	h.await(all)
	before := h.domains()
	spans := h.timeline(2 * time.Second)
	after := h.domains()
	lines := map[string][]control.Span{}
	counted := map[string]int64{}
	for _, s := range spans {
		if s.Lost > 0 {
			t.Errorf("%d pieces of work are missing", s.Lost)
		}
		if s.Domain != "one" && s.Domain != "two" || s.To <= s.From {
			t.Fatalf("%+v", s)
		}
		lines[s.Line] = append(lines[s.Line], s)
		if s.Line != control.LineGate {
			counted[s.Line+" "+s.Domain] += s.To - s.From
		}
	}
	for _, s := range all {
		drawn, used := counted["engine "+s.name], after[s.name].GPU-before[s.name].GPU
		if drawn > used || drawn < used*3/4 { // to ask for both takes a while, too
			t.Errorf("domain %s used %v, and %v are drawn", s.name, time.Duration(used), time.Duration(drawn))
		}
		if counted["cpu "+s.name] == 0 {
			t.Errorf("no thread of domain %s is seen to run", s.name)
		}
	}
	windows := lines[control.LineGate]
	if len(windows) < 20 {
		t.Errorf("%d windows in two seconds, of 30 ms each", len(windows))
	}
	for i, w := range windows {
		for _, v := range windows[i+1:] {
			if v.Domain != w.Domain && v.From < w.To && w.From < v.To {
				t.Fatalf("both gates are open at once: %+v, %+v", w, v)
			}
		}
	}
	outside := 0
	first, last := windows[0].From, windows[len(windows)-1].To
	for _, e := range lines[control.LineEngine] {
		if e.From < first || e.From > last {
			continue
		}
		inside := false
		for _, w := range windows { // what is submitted at a window's end runs on
			inside = inside || w.Domain == e.Domain && e.From >= w.From && e.From < w.To+int64(20*time.Millisecond)
		}
		if !inside {
			outside++
		}
	}
	if n := len(lines[control.LineEngine]); outside > n/20 {
		t.Errorf("%d of %d pieces of work began outside of their domain's windows", outside, n)
	}
}

// timeline is what `pegasus trace --perfetto` draws.
func (h *host) timeline(d time.Duration) (spans []control.Span) {
	h.t.Helper()
	client, err := control.Dial(h.controlSocket())
	if err != nil {
		h.t.Fatal(err)
	}
	defer client.Close()
	end := time.AfterFunc(d, func() { client.Close() })
	defer end.Stop()
	client.Stream(control.MethodTimeline, nil, func(data json.RawMessage, last bool) error {
		d := json.NewDecoder(bytes.NewReader(data))
		d.DisallowUnknownFields()
		var s control.Span
		if err := d.Decode(&s); err != nil && !last {
			h.t.Errorf("%v in %s", err, data)
		} else if !last {
			spans = append(spans, s)
		}
		return nil
	})
	return spans
}

// Why a domain is slow is told in parts of time that add up.
func TestSpent(t *testing.T) {
	all := []sharer{{"one", 256, 3}, {"three", 768, 3}}
	h := startHost(t, shareConfig("accc", "production", all))
	for _, s := range all {
		h.run(s)
	}
	h.await(all)
	eventually(t, soon, "a domain with a quarter of the credits waits more than half of the time", func() bool {
		s := h.domains()["one"].Spent
		return s.Window > int64(time.Second) && s.Accelerator > 0.1 && s.Accelerator < 0.4 && s.Turn > 0.5 &&
			s.Accelerator+s.Turn+s.Idle > 0.999 && s.Accelerator+s.Turn+s.Idle < 1.001
	})
	if text := string(h.pegasus("why", "one")); !strings.Contains(text, "% waiting for its turn") {
		t.Errorf("why says:\n%s", text)
	}
}
