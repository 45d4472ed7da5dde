package backend

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A worker has the timer slack, and no thread of the daemon keeps it.
func TestTimerSlack(t *testing.T) {
	cmd := exec.Command("sleep", "1000")
	if err := startLazily(cmd); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	slack := func(path string) string {
		t.Helper()
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(text))
	}
	want := fmt.Sprint(timerSlack.Nanoseconds())
	if got := slack(fmt.Sprintf("/proc/%d/timerslack_ns", cmd.Process.Pid)); got != want {
		t.Errorf("the worker's timer slack is %s ns, want %s", got, want)
	}
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		text, err := os.ReadFile("/proc/" + task.Name() + "/timerslack_ns") // /proc/self/task/TID has none
		if err == nil && strings.TrimSpace(string(text)) == want {
			t.Errorf("thread %s of the daemon has it", task.Name())
		}
	}
	if n, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0); err != nil || fmt.Sprint(n) == want {
		t.Errorf("this thread has %d ns, %v", n, err)
	}
}
