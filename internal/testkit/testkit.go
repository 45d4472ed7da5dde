// Package testkit has the helpers that tests of several packages share: waits for conditions, and the files of the
// build. It has no state.
//
// Callers: tests only.
package testkit

import (
	"os"
	"path/filepath"
	"time"
)

// TB is the part of testing.TB that these helpers use. Harnesses that are no tests implement it, too.
type TB interface {
	Helper()
	Fatalf(format string, args ...any)
}

// Soon bounds the delay until a change that needs no time is visible, on a slow machine with other load.
const Soon = 30 * time.Second

// Eventually polls ok until it returns true, and fails the test after Soon.
func Eventually(t TB, what string, ok func() bool) {
	t.Helper()
	Within(t, Soon, what, ok)
}

// Within polls ok until it returns true, and fails the test after d. The first polls follow each other closely; later
// ones are 20 ms apart, so that a poll that runs a program loads the machine little.
func Within(t TB, d time.Duration, what string, ok func() bool) {
	t.Helper()
	const least, most = 100 * time.Microsecond, 20 * time.Millisecond
	deadline := time.Now().Add(d)
	for pause := least; !ok(); pause = min(2*pause, most) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", d, what)
		}
		time.Sleep(pause)
	}
}

// Built returns the path of a file that make build has made, such as bin/pegasus: below PEGASUS_BUILD, otherwise below
// the repository's folder build. The test fails if the file is missing.
func Built(t TB, name string) string {
	t.Helper()
	dir := os.Getenv("PEGASUS_BUILD")
	if dir == "" {
		dir = filepath.Join(root(t), "build")
	}
	path, err := filepath.Abs(filepath.Join(dir, name))
	if err != nil {
		t.Fatalf("%v", err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v; run `make build` first", err)
	}
	return path
}

// root returns the repository's folder: the nearest with a go.mod.
func root(t TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatalf("%v", err)
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			t.Fatalf("no go.mod above the test's folder")
		}
	}
}
