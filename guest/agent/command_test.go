package agent

import (
	"context"
	"errors"
	"testing"
	"time"
)

// A program that hangs, or leaves a process behind that keeps its output open, is waited for up to the limit only.
func TestCommandEnds(t *testing.T) {
	for name, script := range map[string]string{
		"hangs":             "while :; do sleep 1; done",
		"trickles":          "while :; do echo .; sleep 0.01; done",
		"leaves a process":  "sleep 1000 & exit 0",
		"hangs in a child":  "sh -c 'sleep 1000'; echo never",
		"ignores its end":   "trap '' TERM INT HUP; sleep 1000; sleep 1000",
		"closes its output": "exec >&- 2>&-; sleep 1000",
	} {
		t.Run(name, func(t *testing.T) {
			begin := time.Now()
			_, err := Command(200*time.Millisecond, "sh", "-c", script)
			if d := time.Since(begin); err == nil || d > 20*time.Second {
				t.Errorf("%v after %v", err, d)
			}
		})
	}
	if _, err := Command(100*time.Millisecond, "sleep", "1000"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v isn't told apart", err)
	}
	if out, err := Command(time.Minute, "sh", "-c", "echo out; echo err >&2"); err != nil || string(out) != "out\nerr\n" {
		t.Errorf("%q, %v", out, err)
	}
}
