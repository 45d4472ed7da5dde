// Package test runs end-to-end tests: the daemon, its workers, the C library and real CUDA programs, on the software
// accelerator. It needs the files that `make build` builds, and fails without them.
package test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"pegasus/backend/control"
	"pegasus/internal/testkit"
)

// built returns the path of a file that the build made, such as bin/pegasus.
func built(t testing.TB, name string) string {
	t.Helper()
	return testkit.Built(t, name)
}

// host is a private daemon of the test, in a directory of its own.
type host struct {
	t       testing.TB
	dir     string
	config  string
	private bool
	daemon  *exec.Cmd
	stderr  *os.File          // the daemon's, unless it is the file log
	env     []string          // of the daemon, in addition to the test's
	groups  map[string]string // cgroups.procs of the programs of a domain, if it has a cgroup of its own
}

// startHost starts a private daemon with a configuration and stops it when the test ends.
func startHost(t testing.TB, config string) *host {
	t.Helper()
	h := newHost(t, config)
	h.private = true
	h.start()
	return h
}

// startSystemHost starts a daemon in an operator's configuration: its workers outlive it.
func startSystemHost(t testing.TB, config string) *host {
	t.Helper()
	h := newHost(t, config)
	h.start()
	return h
}

func newHost(t testing.TB, config string) *host {
	t.Helper()
	dir, err := os.MkdirTemp("", "pg") // short: socket paths are at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	h := &host{t: t, dir: dir, config: filepath.Join(dir, "pegasus.toml")}
	h.configure(config)
	t.Cleanup(func() {
		h.stop()
		if t.Failed() {
			if log, err := os.ReadFile(h.log()); err == nil {
				t.Logf("daemon's log:\n%s", tail(log, 60))
			}
		}
		os.RemoveAll(dir)
	})
	return h
}

func tail(text []byte, lines int) []byte {
	all := bytes.SplitAfter(text, []byte("\n"))
	return bytes.Join(all[max(0, len(all)-lines):], nil)
}

func (h *host) log() string { return filepath.Join(h.dir, "log") }

// configure writes the configuration file; a running daemon applies it after reload.
func (h *host) configure(config string) {
	h.t.Helper()
	if err := os.WriteFile(h.config, []byte(config), 0o644); err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) start() {
	h.t.Helper()
	if said := h.tryToStart(); said != "ready\n" {
		text, _ := os.ReadFile(h.log())
		h.t.Fatalf("the daemon did not start: said %q\n%s", said, tail(text, 20))
	}
}

// refuseToStart starts the daemon, which must fail, and returns its error.
func (h *host) refuseToStart() string {
	h.t.Helper()
	said := h.tryToStart()
	if said == "ready\n" {
		h.t.Fatal("the daemon has started")
	}
	h.daemon.Wait()
	h.daemon = nil
	return said
}

// tryToStart starts the daemon and returns its first output.
func (h *host) tryToStart() string {
	h.t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		h.t.Fatal(err)
	}
	defer r.Close()
	log, err := os.OpenFile(h.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		h.t.Fatal(err)
	}
	defer log.Close()
	args := []string{"--runtime-dir", h.dir, "--config", h.config, "--ready-fd", "3"}
	if h.private {
		args = append(args, "--private", "--linger", "10m")
	}
	h.daemon = exec.Command(built(h.t, "bin/pegasusd"), args...)
	h.daemon.Stdout, h.daemon.Stderr = log, log
	if h.stderr != nil {
		h.daemon.Stderr = h.stderr
	}
	h.daemon.ExtraFiles = []*os.File{w}
	h.daemon.Env = append(os.Environ(), h.env...)
	err = h.daemon.Start()
	w.Close()
	if err != nil {
		h.t.Fatal(err)
	}
	said, _ := bufio.NewReader(r).ReadString('\n')
	return said
}

// stop ends the daemon, and the workers that outlived it.
func (h *host) stop() {
	if h.daemon == nil {
		return
	}
	h.daemon.Process.Signal(syscall.SIGTERM)
	done := make(chan struct{})
	go func() { h.daemon.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(soon):
		h.t.Errorf("the daemon did not end within %v of SIGTERM", soon)
		h.daemon.Process.Kill()
		<-done
	}
	h.daemon = nil
}

// kill ends the daemon as a crash would.
func (h *host) kill() {
	h.t.Helper()
	h.daemon.Process.Kill()
	h.daemon.Wait()
	h.daemon = nil
}

// pegasus runs the operator's command and returns its output.
func (h *host) pegasus(args ...string) []byte {
	h.t.Helper()
	out, err := h.try(args...)
	if err != nil {
		h.t.Fatal(err)
	}
	return out
}

// try runs pegasus for commands that may fail.
func (h *host) try(args ...string) ([]byte, error) {
	args = append([]string{args[0], "--runtime-dir", h.dir}, args[1:]...)
	cmd := exec.Command(built(h.t, "bin/pegasus"), args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("pegasus %s: %v\n%s", strings.Join(args, " "), err, &stderr)
	}
	return out, err
}

// domains returns the daemon's domains by name.
func (h *host) domains() map[string]control.Domain {
	h.t.Helper()
	var list []control.Domain
	if err := json.Unmarshal(h.pegasus("domains", "--json"), &list); err != nil {
		h.t.Fatal(err)
	}
	m := make(map[string]control.Domain)
	for _, d := range list {
		m[d.Name] = d
	}
	return m
}

// accelerators returns the daemon's accelerators.
func (h *host) accelerators() []control.Accelerator {
	h.t.Helper()
	var list []control.Accelerator
	if err := json.Unmarshal(h.pegasus("accelerators", "--json"), &list); err != nil {
		h.t.Fatal(err)
	}
	return list
}

// guest returns a program of a domain, not yet started.
func (h *host) guest(domain, program string, args ...string) *exec.Cmd {
	if !strings.Contains(program, "/") {
		if path, err := exec.LookPath(program); err == nil {
			program = path
		}
	}
	args = append([]string{"run", "--runtime-dir", h.dir, "--domain", domain, "--", program}, args...)
	if group := h.groups[domain]; group != "" {
		args = append([]string{"-c", `echo $$ >"$0" && exec "$@"`, group, built(h.t, "bin/pegasus")}, args...)
		return exec.Command("/bin/sh", args...)
	}
	return exec.Command(built(h.t, "bin/pegasus"), args...)
}

// testCgroups makes a cgroup under the cpu controller for the programs of each domain, and removes them when the test
// ends. It returns the paths of their files of processes.
func testCgroups(t testing.TB, domains ...string) map[string]string {
	t.Helper()
	top := "/sys/fs/cgroup"
	if _, err := os.Stat(filepath.Join(top, "cgroup.controllers")); err != nil {
		top = filepath.Join(top, "cpu") // version 1
	} else if err := os.WriteFile(filepath.Join(top, "cgroup.subtree_control"), []byte("+cpu"), 0o644); err != nil {
		t.Fatal(err)
	}
	groups := map[string]string{}
	for _, domain := range domains {
		dir, err := os.MkdirTemp(top, "pegasus-test-"+domain+"-")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			eventually(t, soon, "the programs of "+domain+" end", func() bool { return os.Remove(dir) == nil })
		})
		groups[domain] = filepath.Join(dir, "cgroup.procs")
	}
	return groups
}

// bench returns one of the benchmark programs as a guest.
func (h *host) bench(domain, name string, args ...string) *exec.Cmd {
	h.t.Helper()
	return h.guest(domain, built(h.t, "bench/"+name), append([]string{"--quiet"}, args...)...)
}

// background starts a guest and kills it when the test ends.
func background(t testing.TB, cmd *exec.Cmd) *exec.Cmd {
	t.Helper()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if cmd.Stdout == nil {
		cmd.Stdout = io.Discard
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		if t.Failed() && stderr.Len() > 0 {
			t.Logf("%s said:\n%s", strings.Join(cmd.Args, " "), tail(stderr.Bytes(), 20))
		}
	})
	return cmd
}

// succeed runs a guest to its end.
func succeed(t testing.TB, cmd *exec.Cmd) []byte {
	t.Helper()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", strings.Join(cmd.Args, " "), err, out, tail(stderr.Bytes(), 30))
	}
	return out
}

// soon bounds the delay until an immediate change is visible: on a slow and busy machine even the query takes a while.
const soon = time.Minute

// eventually polls ok until it returns true, and fails after d.
func eventually(t testing.TB, d time.Duration, what string, ok func() bool) {
	t.Helper()
	testkit.Within(t, d, what, ok)
}
