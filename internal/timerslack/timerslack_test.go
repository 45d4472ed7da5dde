package timerslack

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The thread that gets the slack is the one that wakes while a goroutine computes without system calls. The main thread
// keeps the usual slack.
func TestRelaxMonitor(t *testing.T) {
	if err := RelaxMonitor(); err != nil {
		t.Fatal(err)
	}
	tid, err := monitor()
	if err != nil {
		t.Fatal(err)
	}
	if got := slackOf(t, tid); got != relaxed {
		t.Errorf("the monitor's slack is %v, want %v", got, relaxed)
	}
	if got := slackOf(t, fmt.Sprint(os.Getpid())); got != usual {
		t.Errorf("the main thread's slack is %v, want %v", got, usual)
	}
	before := sleeps(t, tid)
	for end := time.Now().Add(time.Minute); sleeps(t, tid) < before+10; {
		if time.Now().After(end) {
			t.Fatalf("thread %s slept %d times in a minute: it is not the monitor", tid, sleeps(t, tid)-before)
		}
		for spin := time.Now().Add(10 * time.Millisecond); time.Now().Before(spin); {
		}
	}
}

func TestRestore(t *testing.T) {
	runtime.LockOSThread() // the thread ends with the test
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(relaxed), 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	if err := Restore(); err != nil {
		t.Fatal(err)
	}
	if got := slackOf(t, fmt.Sprint(unix.Gettid())); got != usual {
		t.Errorf("the slack is %v, want %v", got, usual)
	}
}

func slackOf(t *testing.T, tid string) (slack time.Duration) {
	text, err := os.ReadFile(file(tid))
	if err != nil {
		t.Fatal(err)
	}
	var ns int64
	if _, err := fmt.Sscan(string(text), &ns); err != nil {
		t.Fatal(err)
	}
	return time.Duration(ns)
}

// sleeps returns how often a thread of this process has given up its processor.
func sleeps(t *testing.T, tid string) (n int) {
	text, err := os.ReadFile("/proc/self/task/" + tid + "/status")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), "\nvoluntary_ctxt_switches:")
	if _, err := fmt.Sscan(after, &n); err != nil {
		t.Fatal(err)
	}
	return n
}
