package api

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"pegasus/backend/control"
	"pegasus/backend/events"
	"pegasus/backend/guests"
	"pegasus/backend/workers"
	"pegasus/configs"
	"pegasus/hypervisor/local"
	"pegasus/policies"
	"pegasus/vcpu"
)

// A trace of use has the data from which shares are computed, and nothing else.
func TestAboutUse(t *testing.T) {
	event := func(k policies.EventKind, u vcpu.Usage) policies.Record {
		return policies.Record{Event: &policies.Event{Kind: k, Used: u}}
	}
	for _, c := range []struct {
		what string
		r    policies.Record
		want bool
	}{
		{"the policy at the beginning", policies.Record{Choice: &policies.Choice{}}, true},
		{"who came", event(policies.Attach, vcpu.Usage{}), true},
		{"a kernel", event(policies.Charge, vcpu.Usage{Compute: time.Millisecond}), true},
		{"a copy", event(policies.Charge, vcpu.Usage{Copy: time.Millisecond}), true},
		{"idleness", event(policies.Charge, vcpu.Usage{Idle: time.Millisecond}), false},
		{"a request at the gate", event(policies.Head, vcpu.Usage{}), false},
		{"a decision", policies.Record{Ready: true}, false},
	} {
		if got := aboutUse(c.r); got != c.want {
			t.Errorf("%s: %v", c.what, got)
		}
	}
}

// Changes that need a restart take effect with it.
func TestControlGroupWaitsForRestart(t *testing.T) {
	dir, log := t.TempDir(), slog.New(slog.DiscardHandler)
	path := filepath.Join(dir, "pegasus.toml")
	if err := os.WriteFile(path, []byte("[daemon]\ncontrol_group = \"54322\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	config, journal := configs.Default(), events.NewJournal(log)
	config.Daemon.ControlGroup = "54321"
	r := registry(t, config, path, dir, journal, log)
	r.Start(context.WithCancel(t.Context()))
	d := New(Options{Config: config, RuntimeDir: dir, Guests: r.Requests(), Reload: r.Reload, Journal: journal, Log: log})
	if result, err := r.Reload(nil); err != nil || len(result.Changes) == 0 {
		t.Fatalf("%+v, %v", result, err)
	}
	for gid, want := range map[int]string{54321: operator, 54322: ""} {
		if role, err := d.roleOf(caller{Peer: control.Peer{UID: 4242, GID: gid}}, ""); role != want || err != nil {
			t.Errorf("a member of group %d: %q, %v", gid, role, err)
		}
	}
}

// registry returns the guests of a daemon without accelerators.
func registry(t testing.TB, config *configs.Config, path, dir string, journal *events.Journal, log *slog.Logger) *guests.Registry {
	t.Helper()
	return guests.New(guests.Options{Config: config, ConfigPath: path, RuntimeDir: dir, Journal: journal, Log: log,
		Adapter: local.Adapter{Dir: filepath.Join(dir, "domains"), Log: log},
		Accept:  configs.Options{Policies: policies.Names(), Types: []string{"soft"}}, Workers: workers.New(workers.Options{RuntimeDir: dir, Log: log})})
}

// A HEAD request of a stream ends: it has no lines, and the next request of its connection is answered.
func TestHeadOfStreamEnds(t *testing.T) {
	s := newServer(t)
	for _, path := range []string{"/v1/events", "/v1/live", "/v1/timeline", "/v1/trace"} {
		r := httptest.NewRequest(http.MethodHead, path, nil)
		w := httptest.NewRecorder()
		ctx, cancel := context.WithTimeout(contextOf(r, caller{Peer: control.Peer{UID: 0}}), 10*time.Second)
		s.handler.ServeHTTP(w, r.WithContext(ctx))
		if ctx.Err() != nil {
			t.Errorf("%s: the answer did not end", path)
		}
		cancel()
		if kind := w.Header().Get("Content-Type"); w.Code != http.StatusOK || kind != control.LinesType || w.Body.Len() > 0 {
			t.Errorf("%s: got %d, %s and %d bytes", path, w.Code, kind, w.Body.Len())
		}
	}
}

// A refusal of a body gives the remedy, and its status is in the description of each operation.
func TestRefusedBodies(t *testing.T) {
	s := newServer(t)
	for _, c := range []struct {
		kind, body string
		status     int
		want       string
	}{
		{"application/x-www-form-urlencoded", `{"settings":{}}`, http.StatusUnsupportedMediaType, "Content-Type: application/json"}, // as curl -d sends
		{"application/json", `{"Settings":{}}`, http.StatusUnprocessableEntity, "/v1/openapi.json"},
	} {
		r := httptest.NewRequest(http.MethodPatch, "/v1/domains/web", strings.NewReader(c.body))
		r.Header.Set("Content-Type", c.kind)
		w := httptest.NewRecorder()
		s.handler.ServeHTTP(w, r.WithContext(contextOf(r, caller{Peer: control.Peer{UID: 0}})))
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.want) {
			t.Errorf("%s %s: got %d %s; want %d and %q", c.kind, c.body, w.Code, w.Body, c.status, c.want)
		}
	}
	for path, item := range s.spec.Paths {
		for _, op := range []*huma.Operation{item.Get, item.Post, item.Put, item.Patch, item.Delete} {
			for _, status := range control.Statuses() {
				if op != nil && op.Responses[strconv.Itoa(status)] == nil {
					t.Errorf("%s %s: the description has no answer %d", op.Method, path, status)
				}
			}
		}
	}
}
