package main

import (
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"pegasus/backend/control"
	"pegasus/internal/testkit"
)

// A later start removes the directory of a program's own daemon that was killed, and no other directory: not
// that of a running daemon, not one that changed just now, and none that another user owns or that is not
// such a daemon's.
func TestKilledOwnDaemon(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("run the tests as root: this one gives a directory to another user")
	}
	base, err := os.MkdirTemp("", "pg") // short: socket paths are at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(base) })
	t.Setenv(control.RuntimeVariable, base)
	t.Setenv("PATH", buildDaemon(t)+":"+os.Getenv("PATH"))
	start := func() (dir string, pid int) {
		t.Helper()
		daemon, dir, err := startOwn("")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { daemon.Close() })
		if _, err := daemon.Hold(t.Context(), control.HoldParams{Domain: "held"}); err != nil { // without a program, it would end soon
			t.Fatal(err)
		}
		s, err := daemon.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { shutDown(daemon, control.ShutdownParams{}) })
		return dir, s.PID
	}
	put := func(name string, files ...string) string {
		t.Helper()
		dir := filepath.Join(base, name)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if err := os.WriteFile(filepath.Join(dir, f), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	age := func(dirs ...string) {
		t.Helper()
		then := time.Now().Add(-2 * startTime)
		for _, dir := range dirs {
			if err := os.Chtimes(dir, then, then); err != nil {
				t.Fatal(err)
			}
		}
	}
	wants := func(when string, want ...string) {
		t.Helper()
		got, err := filepath.Glob(base + "/*")
		slices.Sort(want)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: got %v, %v, want %v", when, got, err, want)
		}
	}

	killed, pid := start()
	runs, _ := start()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the killed daemon is gone", func() bool {
		var status syscall.WaitStatus
		syscall.Wait4(pid, &status, syscall.WNOHANG, nil)
		return syscall.Kill(pid, 0) != nil
	})
	other := put("own-other", control.OnceMark, control.DaemonLock)
	if err := os.Chown(other, 65534, -1); err != nil {
		t.Fatal(err)
	}
	kept := []string{runs, other, put("own-lockless", control.OnceMark), put("own-unmarked", control.DaemonLock), put("owned", control.OnceMark, control.DaemonLock)}
	failed := put("own-failed", control.PrivateLog)
	if err := os.WriteFile(filepath.Join(failed, control.PrivateLog), []byte("why"), 0o600); err != nil {
		t.Fatal(err)
	}
	kept = slices.Clip(append(kept, failed, put("own-starting", control.PrivateLog))) // the latter is young
	age(kept[:len(kept)-1]...)
	age(put("own-begun", control.PrivateLog), put("own-empty")) // their programs were ended before the daemon started
	young, _ := start()
	wants("just after the end", append(kept, killed, young)...)
	age(runs, killed)
	last, _ := start()
	wants("later", append(kept, young, last)...)
}
