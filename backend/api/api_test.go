package api

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

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
