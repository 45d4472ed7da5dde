//go:build soak

package live

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// startDaemon starts the daemon of the node's package, as systemd does.
func startDaemon(t testing.TB) *exec.Cmd {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	config := filepath.Join(home, "pegasus.toml")
	if err := os.WriteFile(config, []byte(oneAccelerator), 0o644); err != nil {
		t.Fatal(err)
	}
	log, err := os.OpenFile(filepath.Join(home, "pegasusd.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(built("bin/pegasusd"), "--runtime-dir", runtimeDir, "--config", config, "--ready-fd", "3")
	cmd.ExtraFiles, cmd.Stdout, cmd.Stderr = []*os.File{w}, log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	if text, err := bufio.NewReader(r).ReadString('\n'); text != "ready\n" {
		t.Fatalf("the daemon did not start: %q, %v", text, err)
	}
	return cmd
}

// drivers returns the driver's processes.
func drivers() (found []int) {
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range all {
		line, _ := os.ReadFile(file)
		if strings.HasPrefix(string(line), "/usr/bin/pegasus-dra\x00") {
			pid := 0
			for _, digit := range filepath.Base(filepath.Dir(file)) {
				pid = 10*pid + int(digit-'0')
			}
			found = append(found, pid)
		}
	}
	return found
}

// progress watches domains' use of the accelerator and keeps the longest time in which each used nothing.
type progress struct {
	mu      sync.Mutex
	used    map[string]int64
	since   map[string]time.Time
	longest map[string]time.Duration
}

func watch(t *testing.T, names ...string) (p *progress, stop func()) {
	p = &progress{used: map[string]int64{}, since: map[string]time.Time{}, longest: map[string]time.Duration{}}
	end := make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		for {
			select {
			case <-end:
				return
			case <-time.After(50 * time.Millisecond):
			}
			if now, ok := domains(t); ok {
				p.mu.Lock()
				for _, name := range names {
					if d, ok := now[name]; ok && int64(d.Compute) > p.used[name] {
						if last, ok := p.since[name]; ok {
							p.longest[name] = max(p.longest[name], time.Since(last))
						}
						p.used[name], p.since[name] = int64(d.Compute), time.Now()
					}
				}
				p.mu.Unlock()
			}
		}
	})
	return p, func() { close(end); all.Wait() }
}

// Daemon, driver, kubelet and containerd are killed in turn, 50 times in all. No pod sees an error, and none is without
// its share for longer than a second. The daemon is the node's own: one in a container ends with its container, and its
// workers end with it.
func TestKills(t *testing.T) {
	c := live(t)
	c.kubectl("", "-n", "pegasus-system", "delete", "daemonset", "pegasus", "--cascade=foreground", "--timeout=3m") // with the daemon in it
	os.RemoveAll(runtimeDir)
	daemon := startDaemon(t)
	defer func() {
		daemon.Process.Signal(syscall.SIGTERM)
		daemon.Wait()
	}()
	c.install(t, map[string]any{"enabled": false})
	steps := c.stepsPerMs(t)
	var names []string
	var pods []*pod
	for _, p := range []*pod{{name: "small", credits: 256}, {name: "large", credits: 768 - 64}} {
		p.c, p.memory, p.program = c, "64Mi", busy(steps)
		p.begin(t).reaches(t, corev1.PodRunning)
		pods, names = append(pods, p), append(names, p.domainOf(t))
	}
	// Processes that begin and end see no error, either: a new one waits for the daemon.
	short := (&pod{c: c, name: "short", credits: 64, memory: "64Mi", program: "while vectoradd --iterations 1 --quiet; do :; done"}).begin(t)
	short.reaches(t, corev1.PodRunning)
	eventually(t, "both pods compute", func() bool {
		all, _ := domains(t)
		return all[names[0]].Compute > 1e8 && all[names[1]].Compute > 1e8
	})
	p, stop := watch(t, names...)
	began := time.Now()
	for i := range 50 {
		switch i % 4 {
		case 0:
			daemon.Process.Signal(syscall.SIGKILL)
			daemon.Wait()
			daemon = startDaemon(t)
		case 1:
			for _, pid := range drivers() {
				syscall.Kill(pid, syscall.SIGKILL)
			}
		case 2:
			c.restart(t, "kubelet")
		case 3:
			c.restart(t, "containerd")
		}
		time.Sleep(500 * time.Millisecond) // the parts find each other again, or are killed while they do
	}
	stop()
	t.Logf("50 kills in %v; the longest time without progress: %v", time.Since(began).Round(time.Second), p.longest)
	for name, d := range p.longest {
		if d > time.Second {
			t.Errorf("domain %s: %v without its share", name, d)
		}
	}
	for _, p := range append(pods, short) {
		if phase := p.phase(t); phase != corev1.PodRunning {
			t.Errorf("pod %v is %s: %s", p, phase, p.log())
		}
		if out := p.log(); strings.Contains(out, "CUDA_ERROR") {
			t.Errorf("pod %v saw an error: %s", p, out)
		}
	}
	for _, p := range append(pods, short) {
		p.end(t)
	}
	c.nothingIsLeft(t)
}
