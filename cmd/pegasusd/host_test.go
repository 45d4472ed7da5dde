package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pegasus/backend/control"
)

// The workers' CPU time counts for the domain, also when they have ended, and after a daemon takes over.
func TestCPUTimeIsTheDomains(t *testing.T) {
	h := newHost(t, twoDomains)
	g := h.guest("a")
	g.must("context")
	before := h.domain("a").WorkerCPU
	h.eventually("its worker computes", func() bool {
		g.must("busy 50ms")
		return h.domain("a").WorkerCPU >= before+int64(20*time.Millisecond)
	})
	d := h.domain("a")
	if other := h.domain("b").WorkerCPU; other != 0 {
		t.Errorf("a domain without workers had %v", time.Duration(other))
	}
	g.kill()
	h.eventually("the worker is gone", func() bool { return h.domain("a").Processes == 0 })
	if now := h.domain("a").WorkerCPU; now < d.WorkerCPU {
		t.Errorf("with its last process the domain's time fell from %v to %v", time.Duration(d.WorkerCPU), time.Duration(now))
	}
	last := h.domain("a").WorkerCPU
	h.guest("a")
	h.stop()
	h.start()
	if now := h.domain("a").WorkerCPU; now < last {
		t.Errorf("with another daemon the domain's time fell from %v to %v", time.Duration(last), time.Duration(now))
	}
}

// When memory runs out the kernel ends a worker, not the daemon.
func TestWorkersGoFirst(t *testing.T) {
	h := newHost(t, twoDomains)
	score := func(pid int) int {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid))
		if err != nil {
			t.Fatal(err)
		}
		n, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	daemon, worker, here := score(h.cmd.Process.Pid), score(h.guest("a").worker), score(os.Getpid())
	if daemon != here || worker != min(daemon+500, 1000) {
		t.Errorf("the daemon's is %d, its worker's %d, the test's %d", daemon, worker, here)
	}
}

// Workers have a weight by their domain's credits, and a change of `cpu` takes effect at once.
func TestCPUWeightAndLimit(t *testing.T) {
	h := newHost(t, twoDomains)
	s, err := h.api().Status(bg)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(s.Confinement, func(c control.Check) bool { return c.Name == "cpu" })
	if i < 0 {
		t.Fatalf("no finding about CPUs: %+v", s.Confinement)
	}
	if c := s.Confinement[i]; c.State != "ok" {
		if c.Fix == "" {
			t.Errorf("%+v says no remedy", c)
		}
		t.Fatalf("run the tests as root where cgroups can be written: %s", c.Detail)
	}
	dir := groupOf(s.Confinement[i], "a")
	g := h.guest("a")
	procs, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil || !slices.Contains(strings.Fields(string(procs)), strconv.Itoa(g.worker)) {
		t.Fatalf("worker %d is not among %q: %v", g.worker, procs, err)
	}
	v2 := true
	if _, err := os.Stat(filepath.Join(dir, "cpu.shares")); err == nil {
		v2 = false
	}
	want := func(file2, text2, file1, text1 string) {
		t.Helper()
		file, text := file1, text1
		if v2 {
			file, text = file2, text2
		}
		got, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil || strings.TrimSpace(string(got)) != text {
			t.Errorf("%s is %q, %v; want %q", file, got, err, text)
		}
	}
	want("cpu.weight", "100", "cpu.shares", "1024")
	want("cpu.max", "max 10000", "cpu.cfs_quota_us", "-1")
	if _, err := h.api().Set(bg, control.SetParams{Domain: "a", Settings: map[string]string{"credits": "512", "cpu": "150%"}}); err != nil {
		t.Fatal(err)
	}
	want("cpu.weight", "200", "cpu.shares", "2048")
	want("cpu.max", "15000 10000", "cpu.cfs_quota_us", "15000")
	if d := h.domain("a"); d.WorkerCPULimit != 150 {
		t.Errorf("the limit is shown as %d %%", d.WorkerCPULimit)
	}
	h.configure(strings.Replace(twoDomains, `name = "a"`, "name = \"a\"\ncpu = \"30%\"", 1))
	if _, err := h.api().Reload(bg); err != nil {
		t.Fatal(err)
	}
	want("cpu.max", "3000 10000", "cpu.cfs_quota_us", "3000")
	if _, err := h.api().Set(bg, control.SetParams{Domain: "a", Settings: map[string]string{"cpu": "0%"}}); err != nil {
		t.Fatal(err)
	}
	want("cpu.max", "max 10000", "cpu.cfs_quota_us", "-1")
}
