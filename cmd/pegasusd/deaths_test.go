package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"pegasus/backend/control"
)

const twoDomains = `
[[accelerator]]
name = "soft0"
memory = "256MiB"
[[domain]]
name = "a"
[[domain]]
name = "b"
`

func alive(pid int) bool { return syscall.Kill(pid, 0) == nil }

func TestGuestKilled(t *testing.T) {
	h := newHost(t, twoDomains)
	victim, mate := h.guest("a"), h.guest("a")
	victim.must("context")
	victim.must("alloc 1048576")
	mate.must("ping")
	if d := h.domain("a"); d.Processes != 2 || d.Memory < 1<<20 || d.Accelerator != "soft0" {
		t.Fatalf("before: %+v", d)
	}
	victim.kill()
	h.eventually("worker and memory are gone", func() bool {
		d := h.domain("a")
		return d.Processes == 1 && d.Memory == 0 && !alive(victim.worker)
	})
	mate.must("ping")
}

func TestWorkerKilled(t *testing.T) {
	h := newHost(t, twoDomains)
	victim, other := h.guest("a"), h.guest("b")
	victim.must("context")
	syscall.Kill(victim.worker, syscall.SIGKILL)
	start := time.Now()
	if said := victim.sendOrder("ping"); !strings.HasPrefix(said, "error:") {
		t.Fatalf("after its worker was killed the guest hears %q", said)
	}
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("that took %v", took)
	}
	other.must("ping")
	h.guest("a").must("context")
	h.eventually("the seat is free", func() bool { return h.domain("a").Processes == 1 })
}

func TestDaemonKilled(t *testing.T) {
	h := newHost(t, twoDomains)
	a1, a2, b := h.guest("a"), h.guest("a"), h.guest("b")
	a1.must("context")
	a1.must("alloc 1048576")
	gone := h.guest("b")
	gone.must("ping")
	if _, err := h.api().Set(bg, control.SetParams{Domain: "a", Settings: map[string]string{"credits": "777"}}); err != nil {
		t.Fatal(err)
	}
	h.eventually("it is written down", func() bool {
		state, err := os.ReadFile(filepath.Join(h.dir, "state.json"))
		return err == nil && strings.Contains(string(state), `"777"`)
	})
	before := h.domain("a")
	h.crash()
	for _, g := range []*guest{a1, a2, b} {
		g.must("ping")
	}
	gone.kill() // while no daemon runs
	h.start()
	after := h.domain("a")
	if after.Processes != 2 || after.Memory != before.Memory || after.Credits != 777 || after.Calls < before.Calls || after.Accelerator != "soft0" {
		t.Errorf("before %+v\nafter  %+v", before, after)
	}
	h.eventually("the dead one is noticed", func() bool { return h.domain("b").Processes == 1 })
	a1.must("ping")
	h.guest("a").must("context")
	a1.kill()
	h.eventually("an adopted guest ends as any other", func() bool {
		d := h.domain("a")
		return d.Processes == 2 && d.Memory == 0 && !alive(a1.worker)
	})
	if left, _ := filepath.Glob(filepath.Join(h.dir, "workers", "*")); len(left) != 2*3 {
		t.Errorf("left behind: %v", left)
	}
}

// A worker's holdings return to its domain, too, if it ended while there was no daemon, or if the next daemon
// ended it.
func TestWorkerEndsWithoutDaemon(t *testing.T) {
	for name, end := range map[string]func(h *host, worker int){
		"killed": func(h *host, worker int) {
			syscall.Kill(worker, syscall.SIGKILL)
			h.eventually("it is gone", func() bool { return !alive(worker) })
		},
		"ended by the next daemon": func(h *host, worker int) { os.Remove(h.record(worker)) },
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, `
[[accelerator]]
name = "soft0"
memory = "256MiB"
[[domain]]
name = "a"
memory = "64MiB"
host_memory = "12MiB"
arena = "4MiB"
`)
			mate, victim, busy := h.guest("a"), h.guest("a"), h.guest("a")
			for _, g := range []*guest{mate, victim, busy} {
				g.must("context")
			}
			mate.must("alloc 1048576")
			victim.must("alloc 50331648")
			fmt.Fprintln(busy.in, "busy 10m")
			h.eventually("it has work", func() bool { return h.domain("a").GPU > int64(10*time.Millisecond) })
			h.crash()
			end(h, victim.worker)
			end(h, busy.worker)
			h.start()
			h.eventually("one process is left, that does nothing, and what the others used is not forgotten", func() bool {
				d := h.domain("a")
				return d.Processes == 1 && d.Memory == 1<<20 && d.HostMemory == 4<<20 && d.State != "running" && d.GPU > int64(10*time.Millisecond)
			})
			h.eventually("the memory is there again", func() bool { return mate.sendOrder("alloc 50331648") == "ok" })
			h.guest("a").must("context") // its arena has room, and so has another's
			h.guest("a").must("context")
		})
	}
}

// A worker's own report counts only if it matches the record. None continues unnoticed.
func TestLyingWorker(t *testing.T) {
	for name, spoil := range map[string]func(path string, text string) error{
		"another domain's": func(path, text string) error {
			return os.WriteFile(path, []byte(strings.Replace(text, `"a"`, `"b"`, 1)), 0o600)
		},
		"not written down": func(path, _ string) error { return os.Remove(path) },
		"half a record":    func(path, text string) error { return os.WriteFile(path, []byte(text[:len(text)/2]), 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, twoDomains)
			g := h.guest("a")
			h.crash()
			records, _ := filepath.Glob(filepath.Join(h.dir, "workers", "*.json"))
			if len(records) != 1 {
				t.Fatalf("records %v", records)
			}
			text, err := os.ReadFile(records[0])
			if err == nil {
				err = spoil(records[0], string(text))
			}
			if err != nil {
				t.Fatal(err)
			}
			h.start()
			h.eventually("the worker is ended", func() bool { return !alive(g.worker) })
			for _, name := range []string{"a", "b"} {
				if d := h.domain(name); d.Processes != 0 {
					t.Errorf("%+v", d)
				}
			}
			if left, _ := filepath.Glob(filepath.Join(h.dir, "workers", "*")); len(left) != 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

// A guest that the next daemon couldn't adopt isn't served.
func TestWorkerThatCantBeWrittenDown(t *testing.T) {
	h := newHost(t, twoDomains)
	obstacle := filepath.Join(h.dir, "workers", "1.json.new", "x")
	if err := os.MkdirAll(obstacle, 0o755); err != nil {
		t.Fatal(err)
	}
	if said := h.knock("a").hear(); !strings.Contains(said, "save the record of worker") {
		t.Errorf("the guest hears %q", said)
	}
	if left, _ := filepath.Glob(filepath.Join(h.dir, "workers", "*")); len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
	h.guest("a").must("ping")
}

// groupOf returns the group of a domain that a finding names.
func groupOf(c control.Check, domain string) string {
	return strings.TrimSuffix(c.Detail[strings.LastIndexByte(c.Detail, ' ')+1:], "NAME") + domain
}

// cgroup returns the cgroup with the memory limit of domain a's workers, "" without one.
func (h *host) cgroup() string {
	h.t.Helper()
	s, err := h.api().Status(bg)
	if err != nil {
		h.t.Fatal(err)
	}
	for _, c := range s.Confinement {
		if c.Name == "cgroup" && c.State == "ok" {
			return groupOf(c, "a")
		}
	}
	return ""
}

func TestPrivateDaemonTakesWorkersAlong(t *testing.T) {
	for name, end := range map[string]func(h *host){"stopped": (*host).stop, "killed": (*host).crash} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, twoDomains, "--private", "--linger", "10m")
			g := h.guest("a")
			group := h.cgroup()
			end(h)
			h.eventually("the worker is gone", func() bool { return !alive(g.worker) })
			if _, err := os.Stat(group); name == "stopped" && group != "" && err == nil {
				t.Errorf("%s is left", group)
			}
			if said := g.sendOrder("ping"); !strings.HasPrefix(said, "error:") {
				t.Errorf("the guest hears %q", said)
			}
		})
	}
}

// A private daemon waits for the first program, which may be slow to connect, whatever it waits for after the last one.
func TestPrivateDaemonAwaitsFirstProgram(t *testing.T) {
	h := prepareHost(t, twoDomains, "--private", "--linger", "0s")
	h.start()
	time.Sleep(arrivalDelay)
	g := h.knock("a")
	if said := g.hear(); !strings.HasPrefix(said, "worker ") {
		t.Fatalf("the guest says %q", said)
	}
	g.must("ping")
	g.kill()
	done := make(chan struct{})
	go func() { h.cmd.Wait(); close(done) }()
	select {
	case <-done:
		h.cmd = nil
	case <-time.After(30 * time.Second):
		t.Fatal("it goes on")
	}
}

// arrivalDelay is the time from a daemon's readiness to a program's connection on a busy host.
const arrivalDelay = 300 * time.Millisecond

func TestPrivateDaemonEndsAfterTheLastGuest(t *testing.T) {
	h := prepareHost(t, twoDomains, "--private", "--linger", "2s")
	g := h.knock("a") // it waits for the daemon, which would not wait long for it
	h.start()
	if said := g.hear(); !strings.HasPrefix(said, "worker ") {
		t.Fatalf("the guest says %q", said)
	}
	g.must("ping")
	g.kill()
	done := make(chan struct{})
	go func() { h.cmd.Wait(); close(done) }()
	select {
	case <-done:
		h.cmd = nil
	case <-time.After(30 * time.Second):
		t.Fatal("it goes on")
	}
	for _, name := range []string{control.SocketName, "domains/a.sock", "domains/a"} {
		if _, err := os.Stat(filepath.Join(h.dir, name)); err == nil {
			t.Errorf("%s is left", name)
		}
	}
}
