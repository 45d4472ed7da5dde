package pidfd

import (
	"os/exec"
	"testing"
)

// The CPU time of an ended process can be read until it is waited for, and not after that.
func TestProcessTime(t *testing.T) {
	cmd := exec.Command("sh", "-c", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; echo; read x")
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
	out.Read(make([]byte, 1))
	pid := cmd.Process.Pid
	running, err := CPUTime(pid)
	if err != nil || running <= 0 {
		t.Fatalf("while it runs: %d, %v", running, err)
	}
	p, err := Open(pid)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	in.Close()
	if err := AwaitExit(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if ended, err := CPUTime(pid); err != nil || ended < running {
		t.Errorf("ended, not waited for: %d, %v; want at least %d", ended, err, running)
	}
	want := running
	cmd.Wait()
	if used := int64(cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()); used < want*9/10 {
		t.Errorf("the kernel counts %d, %d were read before", used, want)
	}
	if _, err := CPUTime(pid); err == nil {
		t.Error("it was waited for, and its time can still be read")
	}
}
