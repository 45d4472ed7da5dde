package agent

import (
	"os"
	"os/exec"
	"testing"
	"time"
)

// A process is identified by its start time, and its end is detected.
func TestProcess(t *testing.T) {
	cmd := exec.Command("sleep", "3600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	life, started, err := openProcess(uint32(cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	defer life.Close()
	self, own, err := openProcess(uint32(os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	if own > started || started == 0 {
		t.Errorf("we started at %d, our child at %d", own, started)
	}
	over := make(chan bool)
	for _, f := range []*os.File{life, self} {
		go func() { awaitEnd(f); over <- true }()
	}
	cmd.Process.Kill()
	cmd.Wait()
	self.Close() // the process that is waited for has ended
	for range 2 {
		select {
		case <-over:
		case <-time.After(time.Minute):
			t.Fatal("an end isn't seen")
		}
	}
	if f, _, err := openProcess(uint32(cmd.Process.Pid)); err == nil {
		f.Close()
		t.Error("a process that has ended is opened")
	}
}

func FuzzParseStart(f *testing.F) {
	f.Add("117 (busy) R 1 117 117 0 -1 4194304 85 0 0 0 0 0 0 0 20 0 1 0 4711 0 0")
	f.Add("1 (a) b) 7 (x) S")
	f.Fuzz(func(t *testing.T, stat string) { parseStart(stat) })
}

// The start time is parsed whatever the process's name.
func TestParseStart(t *testing.T) {
	const rest = " R 1 117 117 0 -1 4194304 85 0 0 0 0 0 0 0 20 0 1 0 4711 0 0"
	for _, name := range []string{"busy", "a b", ") 1 2 3", "(("} {
		if n, err := parseStart("117 (" + name + ")" + rest); err != nil || n != 4711 {
			t.Errorf("%q: %d, %v", name, n, err)
		}
	}
	for _, bad := range []string{"", "1 (x", "1 (x) R 1 2", "1 (x)" + rest[:len(rest)-8] + "x y"} {
		if n, err := parseStart(bad); err == nil {
			t.Errorf("%q: %d", bad, n)
		}
	}
}
