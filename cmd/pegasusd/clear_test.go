package main

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// After the end of a daemon, --clear ends the workers that it left, and removes its runtime directory; a daemon that
// runs is left alone.
func TestClear(t *testing.T) {
	h := newHost(t, twoDomains)
	g := h.guest("a")
	g.must("context")
	clear := func() (string, error) {
		cmd := exec.Command(os.Args[0], "--clear", "--runtime-dir", h.dir, "--config", h.dir+"/pegasus.toml")
		cmd.Env = append(os.Environ(), "BECOME=daemon")
		out, err := cmd.CombinedOutput()
		return string(bytes.TrimSpace(out)), err
	}
	if out, err := clear(); err == nil || !strings.Contains(out, "has a daemon already") {
		t.Errorf("beside a daemon: %v, %q", err, out)
	}
	g.must("ping")
	h.stop()
	g.must("ping")
	if out, err := clear(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	h.eventually("the worker is gone", func() bool { return !alive(g.worker) })
	if said := g.sendOrder("ping"); !strings.HasPrefix(said, "error:") {
		t.Errorf("the guest hears %q", said)
	}
	if _, err := os.Stat(h.dir); !os.IsNotExist(err) {
		t.Errorf("the runtime directory: %v", err)
	}
}
