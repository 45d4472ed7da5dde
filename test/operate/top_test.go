//go:build soak

package operate

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"pegasus/backend/control"
	"pegasus/internal/testkit"
)

const topConfig = `
[[accelerator]]
name   = "soft0"
type   = "soft"
policy = "accc"

[[domain]]
name    = "alpha"
credits = 256

[[domain]]
name    = "beta"
credits = 768
`

// topHost is a daemon with two computing domains, and a terminal of 80×24 in which pegasus top runs.
type topHost struct {
	t      *testing.T
	dir    string
	daemon *exec.Cmd
}

// startTop starts the daemon, the domains and the terminal.
func startTop(t *testing.T) *topHost {
	t.Helper()
	if _, err := exec.LookPath("tmux"); err != nil {
		t.Fatal("tmux is missing: make operate-test installs it")
	}
	dir, err := os.MkdirTemp("", "pg") // short: socket paths are at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	h := &topHost{t: t, dir: dir}
	if err := os.WriteFile(filepath.Join(dir, "pegasus.toml"), []byte(topConfig), 0o644); err != nil {
		t.Fatal(err)
	}
	h.start()
	t.Cleanup(h.stop)
	for _, domain := range []string{"alpha", "beta"} {
		cmd := exec.Command(testkit.Built(t, "bin/pegasus"), "run", "--runtime-dir", dir, "--domain", domain, "--",
			testkit.Built(t, "bench/busy"), "--quiet", "--seconds", "1000")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	}
	h.tmux("-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24",
		fmt.Sprintf("env TERM=screen-256color %s top --runtime-dir %s; echo exit status $?; cat", testkit.Built(t, "bin/pegasus"), dir))
	t.Cleanup(func() { exec.Command("tmux", "-S", h.socket(), "kill-server").Run() })
	return h
}

func (h *topHost) socket() string { return filepath.Join(h.dir, "tmux") }

// start starts the daemon. Its workers outlive it.
func (h *topHost) start() {
	h.t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		h.t.Fatal(err)
	}
	defer r.Close()
	h.daemon = exec.Command(testkit.Built(h.t, "bin/pegasusd"), "--runtime-dir", h.dir, "--config", filepath.Join(h.dir, "pegasus.toml"), "--ready-fd", "3")
	h.daemon.ExtraFiles = []*os.File{w}
	err = h.daemon.Start()
	w.Close()
	if err != nil {
		h.t.Fatal(err)
	}
	if said, _ := bufio.NewReader(r).ReadString('\n'); said != "ready\n" {
		h.t.Fatalf("the daemon did not start: %q", said)
	}
}

func (h *topHost) stop() {
	if h.daemon != nil {
		h.daemon.Process.Signal(syscall.SIGTERM)
		h.daemon.Wait()
		h.daemon = nil
	}
}

func (h *topHost) tmux(args ...string) string {
	h.t.Helper()
	out, err := exec.Command("tmux", append([]string{"-S", h.socket()}, args...)...).CombinedOutput()
	if err != nil {
		h.t.Fatalf("tmux %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// keys sends keys by tmux's names.
func (h *topHost) keys(keys ...string) {
	h.t.Helper()
	h.tmux(append([]string{"send-keys"}, keys...)...)
}

func (h *topHost) screen() string {
	h.t.Helper()
	return h.tmux("capture-pane", "-p")
}

// until waits for a screen that matches a pattern, and returns it.
func (h *topHost) until(pattern string) (screen string) {
	h.t.Helper()
	re := regexp.MustCompile(pattern)
	for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		if screen = h.screen(); re.MatchString(screen) {
			return screen
		}
		if time.Now().After(end) {
			h.t.Fatalf("no screen matches %q; the last:\n%s", pattern, screen)
		}
	}
}

// domain returns a domain from the API.
func (h *topHost) domain(name string) control.Domain {
	h.t.Helper()
	var all []control.Domain
	h.json(&all, "domains", "--json")
	for _, d := range all {
		if d.Name == name {
			return d
		}
	}
	h.t.Fatalf("no domain %s in %v", name, all)
	return control.Domain{}
}

// json runs a command of pegasus and decodes its output.
func (h *topHost) json(v any, args ...string) {
	h.t.Helper()
	out, err := exec.Command(testkit.Built(h.t, "bin/pegasus"), append([]string{args[0], "--runtime-dir", h.dir}, args[1:]...)...).Output()
	if err == nil {
		err = json.Unmarshal(out, v)
	}
	if err != nil {
		h.t.Fatalf("pegasus %v: %v\n%s", args, err, out)
	}
}

func TestOperateTop(t *testing.T) {
	h := startTop(t)
	// Both domains compute; the one with more credits has more.
	screen := h.until(`(?m)^.beta +\d+\.\d % +75\.0 %.*\n.alpha +\d+\.\d % +25\.0 %`)
	t.Logf("the screen:\n%s", screen)

	h.keys("r")
	h.until(`(?s)by SHARE ↑.*alpha .*beta `)
	h.keys("r", "s")
	h.until(`› SHARE`)
	h.keys("k", "Enter")
	h.until(`(?s)by DOMAIN ↓.*alpha .*beta `)

	h.keys("/", "b", "e", "t", "Enter")
	if screen := h.until(`filter "bet"`); strings.Contains(screen, "alpha  ") {
		t.Errorf("the filtered screen has alpha:\n%s", screen)
	}

	// Credits are changed after consent only.
	h.keys("c", "2", "5", "6", "Enter")
	h.until(`change credits of beta from 768 to 256\? y: yes`)
	h.keys("n")
	h.until(`nothing was changed`)
	if got := h.domain("beta").Credits; got != 768 {
		t.Errorf("got %d credits after n, want 768", got)
	}
	h.keys("c", "2", "5", "6", "Enter")
	h.until(`change credits of beta from 768 to 256\? y: yes`)
	h.keys("y")
	h.until(`credits of beta are 256`)
	if got := h.domain("beta").Credits; got != 256 {
		t.Errorf("got %d credits, want 256", got)
	}
	h.until(`(?m)^.beta +\d+\.\d % +50\.0 %`)
	h.keys("c", "x", "Enter", "y")
	h.until(`not changed: .*credits = "x": must be`)
	h.keys("p")
	h.until(`› accc`)
	h.keys("k", "Enter")
	h.until(`change policy of soft0 from accc to rr\? y: yes`)
	h.keys("y")
	h.until(`policy of soft0 is rr`)

	h.keys("Enter")
	h.until(`(?s)beta on soft0: .*where its time went.*accelerator +\d+\.\d %`)
	h.keys("Escape")

	// The daemon ends, and the next one goes on with the domains.
	h.stop()
	h.until(`(?s)beta .*the daemon is gone; trying again`)
	h.start()
	h.until(`(?s)filter "bet".*beta `)
	testkit.Within(t, time.Minute, "the message about the daemon goes", func() bool { return !strings.Contains(h.screen(), "trying again") })

	h.keys("/", "Escape")
	for _, size := range []struct{ x, y int }{{40, 10}, {120, 40}, {80, 24}} {
		h.tmux("resize-window", "-x", fmt.Sprint(size.x), "-y", fmt.Sprint(size.y))
		screen := h.until(`(?s)^pegasus top.*\n.beta .*\n *q quit[^\n]*\n$`)
		if n := strings.Count(screen, "\n"); n != size.y {
			t.Errorf("at %d×%d: got %d lines, want %d:\n%s", size.x, size.y, n, size.y, screen)
		}
	}

	h.keys("f")
	frozen := h.until(`FROZEN`)
	time.Sleep(2500 * time.Millisecond)
	if got := h.screen(); got != frozen {
		t.Errorf("the frozen screen changed from\n%s to\n%s", frozen, got)
	}
	h.keys("q")
	h.until(`exit status 0`)
}

// Without a terminal pegasus top names --once, which prints a table with rates.
func TestOperateTopOnce(t *testing.T) {
	h := startTop(t)
	h.until(`(?m)^.beta +[1-9]`)
	pegasus := testkit.Built(t, "bin/pegasus")
	if out, err := exec.Command(pegasus, "top", "--runtime-dir", h.dir).CombinedOutput(); err == nil || !strings.Contains(string(out), "--once") {
		t.Errorf("got %v and %q, want an error that names --once", err, out)
	}
	out, err := exec.Command(pegasus, "top", "--runtime-dir", h.dir, "--once").CombinedOutput()
	if err != nil || !regexp.MustCompile(`(?m)^soft0 +accc .*\n(.*\n)*beta +[1-9]`).Match(out) || strings.Contains(string(out), "\x1b") {
		t.Errorf("--once: got %v and\n%s", err, out)
	}
	var r struct {
		Domains []struct {
			Name string   `json:"name"`
			Rate *float64 `json:"calls_per_second"`
		} `json:"domains"`
	}
	h.json(&r, "top", "--json")
	if len(r.Domains) != 2 || r.Domains[0].Rate == nil || *r.Domains[0].Rate <= 0 {
		t.Errorf("--json: got %+v, want two domains with rates", r)
	}
}
