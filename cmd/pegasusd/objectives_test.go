package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pegasus/backend/control"
)

const promising = `
[[accelerator]]
name = "soft0"
memory = "256MiB"
cores = 1
[[domain]]
name = "a"
credits = 256
slo = 900
slo_window = "10s"
[[domain]]
name = "b"
credits = 768
`

// A domain that is owed a quarter and expects nine tenths misses its objective: the API, the metrics, the events and
// the explanation show it, and the history has its samples. The answer about another domain names it, too.
func TestViolatedObjective(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 10 s")
	}
	h := newHost(t, promising)
	for _, name := range []string{"b", "a"} { // a is never alone
		for range 2 {
			g := h.guest(name)
			g.must("context")
			go g.sendOrder("busy 1h")
		}
	}
	daemon := h.api()
	h.eventually("a misses its objective", func() bool {
		d, err := daemon.Domain(bg, "a")
		return err == nil && d.Objective.State == control.ObjectiveViolated
	})
	d := h.domain("a")
	o := d.Objective.Objectives
	if len(o) != 1 || o[0].Name != "share" || o[0].Target != 0.9 || o[0].Measured >= 0.9 || o[0].Kept != 0 || !strings.Contains(strings.Join(o[0].Causes, "\n"), "its credits come to 25.0 %") {
		t.Errorf("%+v", o)
	}
	if other := h.domain("b").Objective; other.State != control.ObjectiveNone {
		t.Errorf("b has no objective: %+v", other)
	}

	found := errors.New("found")
	ctx, cancel := context.WithTimeout(bg, soon)
	defer cancel()
	err := h.api().Events(ctx, func(e control.Event) error {
		if e.Kind == "objective" && e.Domain == "a" && strings.Contains(e.Text, "violated") {
			return found
		}
		return nil
	})
	if !errors.Is(err, found) {
		t.Errorf("events: %v", err)
	}
	api := &caller{t: t, path: filepath.Join(h.dir, control.SocketName)}
	if _, _, text := api.send("GET", "/metrics", ""); !strings.Contains(string(text), `pegasus_domain_objective_violated{accelerator="soft0",domain="a",objective="share"} 1`) {
		t.Error("the metrics have no violated objective")
	}
	why, err := h.api().Explain(bg, "a")
	if err != nil || !strings.Contains(strings.Join(why[0].Lines, "\n"), "policy accc keeps to the credits") {
		t.Errorf("%v, %v", why, err)
	}
	history, err := h.api().History(bg, "a")
	if err != nil || len(history.Domains) != 1 || len(history.Domains[0].Samples) == 0 {
		t.Fatalf("%+v, %v", history, err)
	}
	for _, s := range history.Domains[0].Samples[1:] {
		if s.Share < 0 || s.Share > 1 || s.Entitled != 0.25 && s.Entitled != 1 || s.Memory == 0 {
			t.Errorf("%+v", s)
		}
	}
	fit, err := h.api().Fits(bg, control.FitParams{Settings: map[string]string{"credits": "1024"}, Predict: true})
	if err != nil || len(fit) != 1 || !fit[0].Fits || len(fit[0].Others) != 2 || fit[0].Others[0].After != 0.125 || !fit[0].Others[0].Breaks || fit[0].Domain.After != 0.5 {
		t.Errorf("%+v, %v", fit, err)
	}
	h.eventually("about half is predicted, once the others have computed for a while", func() bool {
		fit, err := daemon.Fits(bg, control.FitParams{Settings: map[string]string{"credits": "1024"}, Predict: true})
		if err != nil || len(fit) != 1 || fit[0].Domain.Predicted == nil {
			t.Fatalf("%+v, %v", fit, err)
		}
		share := fit[0].Domain.Predicted.Share
		return share > 0.3 && share < 0.7
	})
}

// The error of settings that no domain can have names the key, and no domain that the caller did not name.
func TestFitsRefusesSettings(t *testing.T) {
	h := newHost(t, twoDomains)
	_, err := h.api().Fits(bg, control.FitParams{Settings: map[string]string{"memory": "999TiB"}})
	if text := fmt.Sprint(err); !strings.Contains(text, `memory = "999TiB": must be`) || strings.Contains(text, "create") {
		t.Errorf("got %s", text)
	}
}

// Work that waits inside the accelerator behind another domain's is work: it is not reported as idle.
func TestSpentBehindOthers(t *testing.T) {
	h := newHost(t, "[[accelerator]]\nname = \"soft0\"\nmemory = \"256MiB\"\ncores = 1\npolicy = \"none\"\n[[domain]]\nname = \"a\"\n[[domain]]\nname = \"b\"\n")
	for name, order := range map[string]string{"a": "busy 1h", "b": "busy 1h 1"} {
		g := h.guest(name)
		g.must("context")
		go g.sendOrder(order)
	}
	h.eventually("b's time went to waiting for the accelerator", func() bool {
		s := h.domain("b").Spent
		return time.Duration(s.Window) > time.Second && s.Accelerator > 0.01 && s.Turn > 0.25
	})
}
