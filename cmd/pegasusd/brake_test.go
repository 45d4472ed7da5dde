package main

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Lines of one kind about one domain are limited; others pass, and the next contains the number of the
// missing ones.
func TestBrake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log := slog.New(newBrake(slog.NewTextHandler(&out, nil)))
		web := log.With("domain", "web")
		for i := range 10_000 {
			log.Warn("too many connections")
			web.Warn("accept a guest")
			log.Info(fmt.Sprintf("process %d: no", i), "kind", "refused", "domain", "web")
		}
		log.Info("credits = 7", "kind", "set", "domain", "web")
		log.Info("process 1: no", "kind", "refused", "domain", "shop")
		if n := strings.Count(out.String(), "\n"); n != 3*brakeBurst+2 {
			t.Errorf("%d lines at once, want %d", n, 3*brakeBurst+2)
		}
		for _, want := range []string{"kind=set domain=web", "kind=refused domain=shop"} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%q is missing", want)
			}
		}
		out.Reset()
		time.Sleep(time.Second)
		for range 100 {
			log.Warn("too many connections")
		}
		if n := strings.Count(out.String(), "\n"); n != brakeRate {
			t.Errorf("%d lines after a second, want %d", n, brakeRate)
		}
		if want := fmt.Sprintf("left_out=%d\n", 10_000-brakeBurst); !strings.Contains(out.String(), want) || strings.Count(out.String(), "left_out") != 1 {
			t.Errorf("got %q, want one %q", out.String(), want)
		}
	})
}

// An unlimited number of kinds takes limited memory.
func TestBrakeForgetsKinds(t *testing.T) {
	log := newBrake(slog.DiscardHandler).(*brake)
	for i := range 3 * brakeKinds {
		log.state.take(brakeKind{"", fmt.Sprint(i)})
	}
	if n := len(log.state.kinds); n > brakeKinds {
		t.Errorf("%d kinds are remembered, want at most %d", n, brakeKinds)
	}
}
