package testkit

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// failure is a TB that panics with the message, as a test would end.
type failure struct{}

func (failure) Helper()                           {}
func (failure) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

// fails returns the message with which f fails.
func fails(t *testing.T, f func()) (message string) {
	t.Helper()
	defer func() {
		if message, _ = recover().(string); message == "" {
			t.Error("it does not fail")
		}
	}()
	f()
	return ""
}

func TestWithin(t *testing.T) {
	polls := 0
	Eventually(t, "the third poll", func() bool { polls++; return polls == 3 })
	if polls != 3 {
		t.Errorf("got %d polls, want 3", polls)
	}
	got := fails(t, func() { Within(failure{}, time.Millisecond, "the moon", func() bool { return false }) })
	if want := "not within 1ms: the moon"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestBuilt(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PEGASUS_BUILD", dir)
	file := filepath.Join(dir, "program")
	if err := os.WriteFile(file, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if got := Built(t, "program"); got != file {
		t.Errorf("got %s, want %s", got, file)
	}
	if got := fails(t, func() { Built(failure{}, "other") }); !strings.Contains(got, "run `make build` first") {
		t.Errorf("got %q", got)
	}
	t.Setenv("PEGASUS_BUILD", "")
	if got := root(t); filepath.Join(got, "internal", "testkit") != must(os.Getwd()) {
		t.Errorf("root: got %s", got)
	}
}

func must(dir string, err error) string {
	if err != nil {
		panic(err)
	}
	return dir
}
