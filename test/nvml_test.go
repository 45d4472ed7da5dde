package test

import (
	"bufio"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"testing"
	"time"
)

const watchedDomains = `
[[accelerator]]
name = "a0"
type = "soft"

[[domain]]
name = "one"
memory = "64MiB"

[[domain]]
name = "two"
memory = "32MiB"
`

// What tools watch GPUs by shows a domain, and nothing of another.
func TestToolsSeeTheirDomain(t *testing.T) {
	h := startHost(t, watchedDomains)
	tool := program(t, "nvml")
	succeed(t, h.guest("one", tool))

	busy := h.bench("one", "busy", "--seconds", "3600")
	if err := busy.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { busy.Process.Kill(); busy.Wait() }()
	mine, others := watch(t, h.guest("one", tool, "watch")), watch(t, h.guest("two", tool, "watch"))
	deadline := time.Now().Add(soon)
	for {
		got := mine.see(t)
		if got.total != 64<<20 {
			t.Fatalf("%+v, where the quota is 64 MiB", got)
		}
		if got.busy >= 30 && len(got.processes) == 1 && strings.HasPrefix(got.processes[0], fmt.Sprint(busy.Process.Pid)+":") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%+v, while process %d is busy", got, busy.Process.Pid)
		}
		time.Sleep(150 * time.Millisecond)
	}
	if got := others.see(t); got.total != 32<<20 || got.used != 0 || got.busy != 0 || len(got.processes) != 0 {
		t.Errorf("another domain sees %+v", got)
	}
}

type seen struct {
	total, used, busy uint64
	processes         []string
}

// watcher is a tool that tells what it sees at each line that it gets.
type watcher struct {
	in  io.Writer
	out *bufio.Reader
}

func watch(t *testing.T, cmd *exec.Cmd) *watcher {
	t.Helper()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); cmd.Wait() })
	return &watcher{in, bufio.NewReader(out)}
}

func (w *watcher) see(t *testing.T) (s seen) {
	t.Helper()
	fmt.Fprintln(w.in)
	line, err := w.out.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscanf(line, "total %d used %d busy %d", &s.total, &s.used, &s.busy); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	_, list, _ := strings.Cut(line, "processes")
	s.processes = strings.Fields(list)
	return s
}
