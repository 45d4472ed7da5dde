package main

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"pegasus/frontend"
	"pegasus/guest/bench/kernels"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"pegasus": func() {
			xenCapabilities = cmp.Or(os.Getenv("XEN_CAPABILITIES"), xenCapabilities)
			main()
		},
		"pegasus-libvirt": func() { os.Exit(fakeLibvirt(os.Args[1:])) },
		"pegasus-fleet":   func() { fmt.Println(strings.Join(os.Args[1:], "\n")) },
		"qemu-fake":       fakeQEMU,
		"guest":           func() { os.Exit(guestMain(os.Args[1:])) },
	})
}

// TestScripts runs the conversations in testdata. Each has a runtime directory of
// its own, so a private daemon of its own.
func TestScripts(t *testing.T) {
	testscript.Run(t, scriptParams(t))
}

// scriptParams gives each script a runtime directory, a XenStore and its permitted programs.
func scriptParams(t *testing.T) testscript.Params {
	t.Helper()
	bin := buildDaemon(t)
	return testscript.Params{
		Dir: "testdata",
		Setup: func(e *testscript.Env) error {
			dir, err := os.MkdirTemp("", "pg") // short: socket paths are at most 107 bytes
			if err != nil {
				return err
			}
			shm := filepath.Join("/dev/shm", filepath.Base(dir)) // for regions, if the fake libvirt makes some
			e.Setenv("SHM", shm)
			e.Defer(func() {
				run([]string{"stop", "--runtime-dir", dir}, &streams{strings.NewReader(""), os.Stderr, os.Stderr})
				os.RemoveAll(dir)
				for _, path := range left(shm) {
					os.RemoveAll(path)
				}
			})
			if err := startStore(e, filepath.Join(dir, "store")); err != nil {
				return err
			}
			lib := filepath.Join(e.WorkDir, "libcuda.so.1")
			if err := os.WriteFile(lib, nil, 0o644); err != nil {
				return err
			}
			e.Setenv("PEGASUS_RUNTIME_DIR", dir)
			e.Setenv("PEGASUS_LIBCUDA", lib)
			e.Setenv("DAEMON", filepath.Join(bin, "built"))
			e.Setenv("PATH", bin+":"+e.Getenv("PATH"))
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"columns":    columns,
			"eventually": eventually,
			"xenstore":   tellStore,
		},
	}
}

// left returns the remaining files of a script in /dev/shm.
func left(shm string) []string {
	all, _ := filepath.Glob(shm + "*")
	return all
}

// buildDaemon builds pegasusd once for all scripts. An unused daemon stays for longer than usual: a script
// queries programs that have ended, and is slow on a slow machine.
func buildDaemon(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	built := filepath.Join(dir, "built")
	if out, err := goBuild(built, "pegasus/cmd/pegasusd"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := os.WriteFile(filepath.Join(dir, "pegasusd"), []byte("#!/bin/sh\nexec "+built+" --linger 5m \"$@\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// eventually runs pegasus until its output matches a pattern, for at most 30 s.
func eventually(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) < 2 {
		ts.Fatalf("usage: eventually PATTERN COMMAND ARGS…")
	}
	pattern, err := regexp.Compile(args[0])
	ts.Check(err)
	for start := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		var out string
		if err := ts.Exec(args[1], args[2:]...); err == nil {
			out = ts.ReadFile("stdout")
		}
		if pattern.MatchString(out) != neg {
			return
		}
		if time.Since(start) > 30*time.Second {
			ts.Fatalf("%v never matched %q; last:\n%s", args[1:], args[0], out)
		}
	}
}

// guestMain is a CUDA program in Go: it carries out its arguments in turn.
func guestMain(args []string) int {
	f := flag.NewFlagSet("guest", flag.ContinueOnError)
	seconds := f.Float64("seconds", 0, "run kernels for so long")
	memory := f.Uint64("memory", 0, "allocate so many bytes")
	wait := f.Bool("wait", false, "then wait until standard input ends, and try once more")
	if err := f.Parse(args); err != nil {
		return 2
	}
	c, err := frontend.Dial(os.Getenv("PEGASUS_SOCKET"))
	if err != nil {
		fmt.Fprintln(os.Stderr, "guest:", err)
		return 1
	}
	defer c.Close()
	if err := work(c, *seconds, *memory); err != nil {
		fmt.Fprintln(os.Stderr, "guest:", err)
		return 1
	}
	fmt.Println("done")
	if *wait {
		bufio.NewReader(os.Stdin).ReadString(0)
		if err := c.Ping(); err != nil {
			fmt.Fprintln(os.Stderr, "guest:", err)
			return 1
		}
		fmt.Println("still there")
	}
	return 0
}

func work(c *frontend.Client, seconds float64, memory uint64) error {
	x, err := c.NewContext(0, 0)
	if err != nil {
		return fmt.Errorf("context: %w", err)
	}
	if memory > 0 {
		if _, err := x.Alloc(memory); err != nil {
			return fmt.Errorf("allocate: %w", err)
		}
	}
	if seconds == 0 {
		return nil
	}
	m, log, err := x.LoadModule(kernels.PTX("busy"))
	if err != nil {
		return fmt.Errorf("module: %w: %s", err, log)
	}
	out, err := x.Alloc(256 * 4)
	if err != nil {
		return err
	}
	params := binary.LittleEndian.AppendUint64(nil, out)
	params = binary.LittleEndian.AppendUint32(params, 1000)
	for start := time.Now(); time.Since(start).Seconds() < seconds; {
		if err := m.Launch(frontend.Stream(0), 0, [3]uint32{1, 1, 1}, [3]uint32{256, 1, 1}, 0, params); err != nil {
			return fmt.Errorf("launch: %w", err)
		}
		if err := x.Synchronize(); err != nil {
			return fmt.Errorf("synchronize: %w", err)
		}
	}
	return nil
}

func goBuild(out, pkg string) ([]byte, error) {
	cmd := exec.Command("go", "build", "-o", out, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	return cmd.CombinedOutput()
}
