package test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"pegasus/backend/client"
	"pegasus/backend/control"
)

// The time line contains the actual events: kernels of each domain within its windows, one window after another, as
// much accelerator time as the daemon counts, and the threads of each domain on the CPUs.
func TestTimeline(t *testing.T) {
	all := []sharer{{"one", 256, 3}, {"two", 256, 3}}
	h := startHost(t, shareConfig("rr", "production", all))
	for _, s := range all {
		h.run(s)
	}
	h.await(all)
	steadily(t, func() error { return drawn(h, all) })
}

// drawn returns an error with the discrepancies in the time line of two domains that keep all of the accelerator busy.
func drawn(h *host, all []sharer) (wrong error) {
	t := h.t
	differs := func(format string, args ...any) { wrong = errors.Join(wrong, fmt.Errorf(format, args...)) }
	// The queries take time, too: so they are made within the recorded time as well as around it.
	var within [2]map[string]control.Domain
	before := h.domains()
	spans := h.timeline(func() {
		within[0] = h.domains()
		time.Sleep(2 * time.Second)
		within[1] = h.domains()
	})
	after := h.domains()
	lines := map[string][]control.Span{}
	counted := map[string]int64{}
	for _, s := range spans {
		if s == (control.Span{}) { // the gathering begins
			continue
		}
		if s.Lost > 0 {
			differs("%d pieces of work are missing", s.Lost)
			continue
		}
		if s.Domain != "one" && s.Domain != "two" || s.To <= s.From {
			t.Fatalf("%+v", s)
		}
		lines[s.Line] = append(lines[s.Line], s)
		if kernel := s.Line == control.LineEngine && s.Class == "compute"; kernel != (s.Name != "") {
			t.Fatalf("%+v has the name %q", s, s.Name)
		}
		if s.Line != control.LineGate {
			counted[s.Line+" "+s.Domain] += s.To - s.From
		}
	}
	for _, s := range all {
		drawn, most, least := counted["engine "+s.name], after[s.name].GPU-before[s.name].GPU, within[1][s.name].GPU-within[0][s.name].GPU
		if drawn > most || drawn < least*3/4 { // the last spans may be missing
			differs("domain %s used %v to %v, and %v are drawn", s.name, time.Duration(least), time.Duration(most), time.Duration(drawn))
		}
		if counted["cpu "+s.name] == 0 {
			differs("no thread of domain %s is seen to run", s.name)
		}
	}
	windows := lines[control.LineGate]
	if len(windows) < 20 {
		differs("%d windows in two seconds, of 30 ms each", len(windows))
		return wrong
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
		for _, w := range windows { // work submitted at a window's end runs on
			inside = inside || w.Domain == e.Domain && e.From >= w.From && e.From < w.To+int64(20*time.Millisecond)
		}
		if !inside {
			outside++
		}
	}
	if n := len(lines[control.LineEngine]); outside > n/20 {
		differs("%d of %d pieces of work began outside of their domain's windows", outside, n)
	}
	return wrong
}

// timeline is what `pegasus trace --perfetto` draws while something is done, once it has begun.
func (h *host) timeline(while func()) (spans []control.Span) {
	h.t.Helper()
	daemon, err := client.Dial(h.controlSocket())
	if err != nil {
		h.t.Fatal(err)
	}
	defer daemon.Close()
	ctx, cancel := context.WithCancel(h.t.Context())
	defer cancel()
	begun, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		for end := time.Now().Add(soon); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
			err := daemon.Timeline(ctx, func(s control.Span) error {
				if spans = append(spans, s); len(spans) == 1 {
					close(begun)
				}
				return nil
			})
			var refused *control.Error
			if !errors.As(err, &refused) || refused.Code != control.CodeConflict { // the previous watcher may not have left yet
				return
			}
		}
	}()
	select {
	case <-begun:
		while()
	case <-over:
	case <-time.After(soon):
	}
	cancel()
	<-over
	return spans
}

// The reasons of a domain's slowness are reported as parts of time that add up.
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
