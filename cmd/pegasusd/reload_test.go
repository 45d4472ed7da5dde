package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pegasus/backend/control"
	"pegasus/hypervisor/local"
)

func (h *host) reload() (control.ReloadResult, error) {
	h.t.Helper()
	return h.api().Reload(bg)
}

func (h *host) mustReload(config string) control.ReloadResult {
	h.t.Helper()
	h.configure(config)
	r, err := h.reload()
	if err != nil {
		h.t.Fatal(err)
	}
	return r
}

func (h *host) set(domain, key, value string) error {
	h.t.Helper()
	_, err := h.api().Set(bg, control.SetParams{Domain: domain, Settings: map[string]string{key: value}})
	return err
}

func (h *host) mustSet(domain, key, value string) {
	h.t.Helper()
	if err := h.set(domain, key, value); err != nil {
		h.t.Fatal(err)
	}
}

// knows reports whether there is a domain of that name.
func (h *host) knows(name string) bool {
	h.t.Helper()
	_, err := h.api().Domain(bg, name)
	return err == nil
}

func (h *host) accelerator() control.Accelerator {
	h.t.Helper()
	all, err := h.api().Accelerators(bg)
	if err != nil {
		h.t.Fatal(err)
	}
	return all[0]
}

func (h *host) socket(domain string) string {
	return local.Socket(filepath.Join(h.dir, "domains"), domain)
}

func exists(path string) bool { _, err := os.Lstat(path); return err == nil }

// A failed reload changes nothing, at whatever point it fails.
func TestReloadFails(t *testing.T) {
	h := newHost(t, twoDomains)
	g := h.guest("a")
	inTheWay := filepath.Join(h.dir, "domains", "z.sock") // in place of the link
	if err := os.MkdirAll(filepath.Join(inTheWay, "in the way"), 0o755); err != nil {
		t.Fatal(err)
	}
	next := strings.Replace(twoDomains, `name = "a"`, "name = \"a\"\ncredits = 999", 1)
	next = strings.Replace(next, `memory = "256MiB"`, "memory = \"256MiB\"\npolicy = \"rr\"", 1)
	next += "[[domain]]\nname = \"y\"\n[[domain]]\nname = \"z\"\n"
	h.configure(next)
	for range 2 {
		if r, err := h.reload(); err == nil || !strings.Contains(err.Error(), `domain "z"`) {
			t.Fatalf("reload: %+v, %v", r, err)
		}
	}
	if c, p := h.domain("a").Credits, h.accelerator().Policy; c != 256 || p != "accc" {
		t.Errorf("after a reload that failed: credits %d, policy %s", c, p)
	}
	if h.knows("y") || h.knows("z") || exists(h.socket("y")) {
		t.Error("a domain came with it")
	}
	s, err := h.api().Status(bg)
	if err != nil || !strings.Contains(s.ConfigError, `domain "z"`) {
		t.Errorf("the status says %q, %v", s.ConfigError, err)
	}
	if err := os.RemoveAll(inTheWay); err != nil {
		t.Fatal(err)
	}
	r, err := h.reload()
	if err != nil || len(r.Changes) != 4 {
		t.Errorf("mended: %+v, %v", r, err)
	}
	if c, p := h.domain("a").Credits, h.accelerator().Policy; c != 999 || p != "rr" {
		t.Errorf("mended: credits %d, policy %s", c, p)
	}
	h.guest("z").must("ping")
	g.must("ping")
	s, err = h.api().Status(bg)
	if err != nil || s.ConfigError != "" {
		t.Errorf("the status says %q, %v", s.ConfigError, err)
	}
}

const (
	declaredOnly = "[daemon]\nundeclared_domains = false\n[[accelerator]]\nname = \"soft0\"\nmemory = \"256MiB\"\n"
	withB        = declaredOnly + "[[domain]]\nname = \"a\"\n[[domain]]\nname = \"b\"\ncredits = 512\n"
	withoutB     = declaredOnly + "[[domain]]\nname = \"a\"\n"
)

// No process can enter a domain that was taken out of the file. Its processes stay until the last has ended;
// then the domain is removed.
func TestRemovedDomain(t *testing.T) {
	for name, remove := range map[string]func(h *host){
		"by a reload": func(h *host) { h.mustReload(withoutB) },
		"at a restart": func(h *host) {
			h.stop()
			h.configure(withoutB)
			h.start()
		},
		"after a crash": func(h *host) {
			h.crash() // its sockets remain
			h.configure(withoutB)
			h.start()
		},
		"by a reload, then a restart": func(h *host) {
			h.mustReload(withoutB)
			h.stop()
			h.start()
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, withB)
			one, two := h.guest("b"), h.guest("b")
			h.guest("a").must("ping")
			h.written("512")
			remove(h)
			if exists(h.socket("b")) || !exists(h.socket("a")) {
				t.Errorf("sockets: b %v, a %v", exists(h.socket("b")), exists(h.socket("a")))
			}
			if err := h.set("b", "credits", "7"); err == nil {
				t.Error("a domain that is no more can be set")
			}
			if _, err := h.api().Hold(bg, control.HoldParams{Domain: "b"}); err == nil {
				t.Error("a domain that is no more can be held")
			}
			one.must("ping")
			two.must("context")
			if d := h.domain("b"); d.Processes != 2 || d.Credits != 512 || d.Socket != "" || d.Declared {
				t.Errorf("with guests: %+v", d)
			}
			one.kill()
			h.eventually("one has gone", func() bool { return h.domain("b").Processes == 1 })
			two.must("ping")
			two.kill()
			h.eventually("it is forgotten", func() bool { return !h.knows("b") })
			h.mustReload(withB)
			h.guest("b").must("ping")
		})
	}
}

// A domain that comes back while it has guests keeps them.
func TestRemovedDomainComesBack(t *testing.T) {
	h := newHost(t, withB)
	g := h.guest("b")
	h.mustReload(withoutB)
	h.mustReload(withB + "processes = 2\n")
	h.guest("b").must("ping")
	g.must("ping")
	if d := h.domain("b"); d.Processes != 2 || d.Socket != h.socket("b") || !d.Declared {
		t.Errorf("%+v", d)
	}
}

// written waits until the daemon's state file contains some text.
func (h *host) written(text string) {
	h.t.Helper()
	h.eventually("the state is written down", func() bool {
		state, _ := os.ReadFile(filepath.Join(h.dir, "state.json"))
		return strings.Contains(string(state), text)
	})
}

// Settings changed while a daemon ran hold for the next one that adopts its guests, unless the file has
// changed.
func TestSettingsAcrossRestart(t *testing.T) {
	h := newHost(t, twoDomains)
	h.guest("a").must("ping")
	h.mustSet("a", "credits", "777")
	h.mustSet("b", "credits", "111")
	if _, err := h.api().SwitchPolicy(bg, control.PolicyParams{Name: "rr", Mode: "paper"}); err != nil {
		t.Fatal(err)
	}
	expect := func(a, b int, policy, mode string) {
		t.Helper()
		if da, db, acc := h.domain("a").Credits, h.domain("b").Credits, h.accelerator(); da != a || db != b || acc.Policy != policy || acc.Mode != mode {
			t.Errorf("credits %d and %d, %s, %s; want %d and %d, %s, %s", da, db, acc.Policy, acc.Mode, a, b, policy, mode)
		}
	}
	h.stop()
	h.start()
	expect(777, 111, "rr", "paper")
	h.stop()
	h.configure(strings.Replace(strings.Replace(twoDomains, `name = "a"`, "name = \"a\"\ncredits = 200", 1),
		`name = "soft0"`, "name = \"soft0\"\npolicy = \"none\"", 1))
	h.start()
	expect(200, 111, "none", "paper")
	h.mustReload(twoDomains)
	expect(256, 111, "accc", "paper")
	h.mustSet("a", "credits", "333")
	h.mustReload(twoDomains + "credits = 444\n") // b's
	expect(333, 444, "accc", "paper")
}

// Settings of `pegasus set` last over daemons without guests, until the file changes the key.
func TestSettingsOutliveTheGuests(t *testing.T) {
	h := newHost(t, twoDomains)
	h.mustSet("a", "credits", "777")
	for _, end := range []func(){h.stop, h.crash} {
		end()
		h.start()
		if d := h.domain("a"); d.Credits != 777 {
			t.Errorf("%+v", d)
		}
	}
	h.stop()
	h.configure(strings.Replace(twoDomains, `name = "a"`, "name = \"a\"\ncredits = 200", 1))
	h.start()
	h.configure(twoDomains)
	h.stop()
	h.start()
	if d := h.domain("a"); d.Credits != 256 {
		t.Errorf("what the file has overtaken came back: %+v", d)
	}
}
