package vm

import (
	"strings"
	"syscall"
	"testing"
	"time"
)

// A machine may stand still for longer than any timeout for a sign of life: its programs go
// on afterwards.
func TestPause(t *testing.T) {
	t.Parallel()
	h := startHost(t, twoMachines)
	m := h.boot("one", `
/bench/busy --seconds 8 --queue 2 --no-check --quiet && echo "went on"
/bench/vectoradd --json
`)
	eventually(t, bootTime, "a program computes", func() bool { return h.domain("one").GPU > 0 })
	syscall.Kill(m.PID(), syscall.SIGSTOP)
	time.Sleep(12 * time.Second)
	syscall.Kill(m.PID(), syscall.SIGCONT)
	out := m.finish()
	if !strings.Contains(out, "went on") || !strings.Contains(out, `"right"`) {
		t.Errorf("programs didn't go on:\n%s", out)
	}
	if strings.Contains(out, "the session ends") {
		t.Errorf("the agent has lost its host:\n%s", out)
	}
}
