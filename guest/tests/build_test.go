// Package tests runs C programs against the guest library: with a host simulated by the tests, which can reject, lie,
// stall and die on demand, and without any host. Each test runs with a plain build of the library and with one under
// the address and undefined-behaviour sanitizers.
package tests

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	librarySource = "../libcuda"
	includes      = "../include"
)

// build is a way to compile the library and the programs.
type build struct {
	name  string
	made  string // folder of make's build that has the library; empty: make builds none like this
	flags []string

	once sync.Once
	dir  string // of the library
	err  error

	mu       sync.Mutex
	programs map[string]string
}

var builds = []*build{
	{name: "plain", made: "guest", flags: []string{"-O2"}},
	{name: "sanitized", made: "guest/asan", flags: []string{"-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-fno-omit-frame-pointer"}},
}

// racing is the build under the thread sanitizer, which restricts the usable addresses.
var racing = &build{name: "racing", flags: []string{"-O1", "-g", "-fsanitize=thread", "-Wno-tsan"}}

var scratch string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "pegasus-guest-tests")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	scratch = dir
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

var warnings = []string{"-std=gnu11", "-Wall", "-Wextra", "-Werror", "-pthread", "-I" + includes, "-I" + librarySource}

func gcc(args ...string) error {
	if out, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("gcc %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

func sources() []string {
	found, _ := filepath.Glob(librarySource + "/*/*.c")
	return found
}

// libcuda returns the directory of libcuda.so.1, which it builds if make has not.
func (b *build) libcuda(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Fatal("gcc is not installed; `make deps` installs it")
	}
	b.once.Do(func() {
		b.dir = filepath.Join(scratch, b.name)
		b.programs = map[string]string{}
		if b.err = os.MkdirAll(b.dir, 0o755); b.err != nil {
			return
		}
		if made := os.Getenv("PEGASUS_BUILD"); made != "" && b.made != "" {
			b.dir = filepath.Join(made, b.made)
			_, b.err = os.Stat(filepath.Join(b.dir, "libcuda.so.1")) // another library makes go test run the tests anew
			return
		}
		args := append([]string{"-shared", "-fPIC", "-fvisibility=hidden", "-o", filepath.Join(b.dir, "libcuda.so.1")}, b.flags...)
		args = append(append(args, warnings...), sources()...)
		b.err = gcc(append(args, "-Wl,-soname,libcuda.so.1", "-Wl,-z,nodelete",
			"-Wl,--version-script="+librarySource+"/api/zz_libcuda.map")...)
	})
	if b.err != nil {
		t.Fatal(b.err)
	}
	return b.dir
}

// program compiles programs/NAME.c, linked to the library and to files of its
// own that the library does not export.
func (b *build) program(t *testing.T, name string, own ...string) string {
	t.Helper()
	dir := b.libcuda(t)
	b.mu.Lock()
	defer b.mu.Unlock()
	if path := b.programs[name]; path != "" {
		return path
	}
	path := filepath.Join(scratch, b.name, name)
	args := append([]string{"-o", path, "programs/" + name + ".c"}, b.flags...)
	args = append(args, warnings...)
	for _, file := range own {
		args = append(args, filepath.Join(librarySource, file))
	}
	if err := gcc(append(args, "-L"+dir, "-l:libcuda.so.1", "-ldl")...); err != nil {
		t.Fatal(err)
	}
	b.programs[name] = path
	return path
}

// limit is how long a program may run before it is killed.
const limit = 2 * time.Minute

// run is one run of a program.
type run struct {
	build   *build
	program string
	args    []string
	socket  string   // PEGASUS_SOCKET, unset if empty
	own     []string // files of the library to link beside it
	env     []string
}

// do runs it and returns its output; a program that fails is an error.
func (r run) do(t *testing.T) (string, error) {
	t.Helper()
	path := r.build.program(t, r.program, r.own...)
	cmd := exec.Command("timeout", append([]string{"-s", "KILL", fmt.Sprint(limit.Seconds()), path}, r.args...)...)
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+r.build.dir, "PEGASUS_LOG=error",
		"ASAN_OPTIONS=detect_leaks=0:handle_segv=1", "UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1")
	cmd.Env = append(cmd.Env, r.env...)
	cmd.Env = append(cmd.Env, "PEGASUS_SOCKET="+r.socket)
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s %s: %w\n%s", r.program, strings.Join(r.args, " "), err, out)
	}
	return string(out), err
}

// each runs a test once per build.
func each(t *testing.T, f func(t *testing.T, b *build)) {
	for _, b := range builds {
		t.Run(b.name, func(t *testing.T) { f(t, b) })
	}
}
