package pidfd

import (
	"context"
	"os"
	"os/exec"
	"testing"
	"time"
)

func TestAwaitExit(t *testing.T) {
	cmd := exec.Command("cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p, err := Open(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	own, err := Dup(p)
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := AwaitExit(ctx, own); err != context.DeadlineExceeded {
		t.Errorf("while it runs: %v", err)
	}
	in.Close()
	if err := AwaitExit(t.Context(), p); err != nil {
		t.Errorf("when it has ended: %v", err)
	}
	cmd.Wait()
	if err := Kill(p); err == nil {
		t.Error("a process that is gone was killed")
	}
}

func TestSameFile(t *testing.T) {
	a, _ := os.Open("pidfd_test.go")
	b, _ := os.Open("pidfd_test.go")
	c, _ := os.Open("pidfd.go")
	defer a.Close()
	defer b.Close()
	defer c.Close()
	if !SameFile(a, b) || SameFile(a, c) {
		t.Error("files are mixed up")
	}
}
