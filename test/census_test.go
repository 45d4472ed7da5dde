package test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// census is the set of a daemon's resources: its descriptors, and its child processes that are not yet reaped.
type census struct {
	fds, guests int
	workers     []int // processes, including idle ones
}

// census counts the daemon's resources. Descriptors are sockets, pidfds and files, including those of Go's runtime,
// which do not change.
func (h *host) census() (c census) {
	h.t.Helper()
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", h.daemon.Process.Pid))
	if err != nil {
		h.t.Fatal(err)
	}
	c.fds, c.workers = len(fds), children(h.daemon.Process.Pid)
	for _, d := range h.domains() {
		c.guests += d.Processes
	}
	return c
}

// children returns the child processes of a process, including unreaped ones.
func children(parent int) (pids []int) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it ended
		}
		after := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		if after[1] == strconv.Itoa(parent) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			pids = append(pids, pid)
		}
	}
	return pids
}

// settled waits until the daemon holds no more than before.
func (h *host) settled(before census) {
	h.t.Helper()
	var now census
	deadline := time.Now().Add(soon)
	for {
		// A connection that is being answered counts for a moment.
		if now = h.census(); now.fds <= before.fds && now.guests <= before.guests && len(now.workers) <= len(before.workers) {
			return
		}
		if time.Now().After(deadline) {
			h.t.Fatalf("the daemon is left with %d descriptors, %d processes, %d guests; before it had %d, %d, %d",
				now.fds, len(now.workers), now.guests, before.fds, len(before.workers), before.guests)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// quiet returns the daemon's census before the test begins, after its idle workers have started.
func (h *host) quiet() (c census) {
	h.t.Helper()
	eventually(h.t, soon, "the daemon comes to rest", func() bool {
		last := c
		c = h.census()
		return len(c.workers) >= 2 && c.fds == last.fds && len(c.workers) == len(last.workers)
	})
	return c
}

// said returns the daemon's log, including its workers'.
func (h *host) said() string {
	h.t.Helper()
	text, err := os.ReadFile(h.log())
	if err != nil {
		h.t.Fatal(err)
	}
	return string(text)
}

// sound fails the test if the daemon or a worker logged a bug of its own.
func (h *host) sound() {
	h.t.Helper()
	if !running(h.daemon.Process.Pid) {
		h.t.Fatal("the daemon is gone")
	}
	log := h.said()
	for _, sign := range []string{"bug: ", "panic: ", "fatal error: ", "goroutine 1 ["} {
		if at := strings.Index(log, sign); at >= 0 {
			h.t.Fatalf("the log holds %q:\n%.2000s", sign, log[max(0, at-200):])
		}
	}
}

// resident returns a process's private memory in bytes.
func resident(t testing.TB, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		t.Fatal(err)
	}
	f := strings.Fields(string(text))
	pages, _ := strconv.Atoi(f[1])
	shared, _ := strconv.Atoi(f[2])
	return (pages - shared) * os.Getpagesize()
}
