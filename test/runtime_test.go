package test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A client that starts as the CUDA runtime in programs does: it looks up the whole API in the versions that it was made
// for, gets none of the undocumented tables, and launches a kernel.
func TestRuntimeComesUp(t *testing.T) {
	h := startHost(t, oneDomain)
	plain, careful := program(t, "runtime"), sanitized(t, "runtime")
	for _, version := range []int{11080, 12010, 12040} {
		t.Run(fmt.Sprint(version), func(t *testing.T) {
			lookups := runtimeLookups(t, version)
			if n := strings.Count(lookups, "\n"); n < 470 && version >= 12010 { // the number of look-ups by a runtime of 12.1
				t.Fatalf("only %d look-ups", n)
			}
			cmd := h.guest("one", plain, fmt.Sprint(version))
			cmd.Stdin = strings.NewReader(lookups)
			out, said := outputs(t, cmd)
			t.Logf("%s", out)
			wantRefusal(t, said, "needs the component guest/tables, which this build of libcuda.so.1 lacks; make RUNTIME_TABLES=1 RUNTIME_KEY=FILE, see docs/runtime.md")
			cmd = h.guest("one", careful, fmt.Sprint(version))
			cmd.Stdin = strings.NewReader(lookups)
			cmd.Env = append(os.Environ(), sanitizedEnv(t)...)
			succeed(t, cmd)
		})
	}
}

// A build with the optional tables serves a runtime through them: each generation its own, with context-local storage,
// and integrity answers that are recomputed here.
func TestRuntimeGetsItsTables(t *testing.T) {
	t.Parallel()
	h := startHost(t, oneDomain)
	for _, build := range []struct {
		name, key, objects string
		flags              []string
	}{
		{"plain", "key", "guest/obj", []string{"-O2"}},
		{"keyless", "tables", "guest/obj", []string{"-O1"}},
		{"sanitized", "key", "guest/asan/obj", []string{"-O1", "-g", "-fsanitize=address,undefined"}},
	} {
		dir := withTables(t, build.key == "key", build.objects, build.flags)
		path := filepath.Join(t.TempDir(), "runtime")
		compile(t, path, append(build.flags, "programs/runtime.c", "-L"+dir, "-l:libcuda.so.1"))
		for _, version := range []int{11080, 12010, 12080, 13000} {
			t.Run(fmt.Sprint(build.name, version), func(t *testing.T) {
				cmd := h.guest("one", path, fmt.Sprint(version), build.key)
				cmd.Stdin = strings.NewReader(runtimeLookups(t, min(version, 12040)))
				cmd.Env = append(os.Environ(), "PEGASUS_LIBCUDA="+dir, "ASAN_OPTIONS=detect_leaks=0", "UBSAN_OPTIONS=halt_on_error=1")
				out, said := outputs(t, cmd)
				if build.key == "key" {
					wantRefusal(t, said, "")
					checkIntegrity(t, version, out)
				} else {
					wantRefusal(t, said, "the component guest/tables has no key for it; make RUNTIME_TABLES=1 RUNTIME_KEY=FILE, see docs/runtime.md")
				}
			})
		}
	}
}

// wantRefusal checks that a program's stderr has the reason of a runtime's failure exactly once; "": not at all.
func wantRefusal(t *testing.T, stderr, reason string) {
	t.Helper()
	n := strings.Count(stderr, "pegasus: cuGetExportTable: ")
	if reason == "" && n == 0 {
		return
	}
	if n != 1 || reason == "" || !strings.Contains(stderr, reason) {
		t.Errorf("%d lines about tables, want one with %q\n%s", n, reason, stderr)
	}
}

// outputs runs a program, which has to succeed, and returns its outputs.
func outputs(t *testing.T, cmd *exec.Cmd) (stdout, stderr string) {
	t.Helper()
	var b bytes.Buffer
	cmd.Stderr = &b
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", strings.Join(cmd.Args, " "), err, out, tail(b.Bytes(), 30))
	}
	return string(out), b.String()
}

// withTables returns the directory of a library with the optional component, with a key of the test's own or without a
// key. It links the objects of the library that the build left in the folder: linking alone adds the component.
func withTables(t *testing.T, key bool, objects string, flags []string) string {
	t.Helper()
	dir := t.TempDir()
	args := append(slices.Clone(flags), "-shared", "-fPIC", "-fvisibility=hidden", "-I../guest/libcuda", "-Wl,-soname,libcuda.so.1",
		"-Wl,-z,nodelete", "-Wl,--version-script=../guest/libcuda/api/zz_libcuda.map")
	sources, _ := filepath.Glob("../guest/libcuda/*/*.c")
	for _, source := range sources {
		name := strings.TrimPrefix(strings.TrimSuffix(source, ".c"), "../guest/libcuda/")
		args = append(args, built(t, filepath.Join(objects, name+".o")))
	}
	tables, _ := filepath.Glob("../guest/tables/*.c")
	args = append(args, tables...)
	if key {
		args = append(args, "-I"+dir)
		writeKey(t, filepath.Join(dir, "runtime_key.h"))
	} else {
		args = slices.DeleteFunc(args, func(a string) bool { return strings.HasSuffix(a, "/integrity.c") })
	}
	compile(t, filepath.Join(dir, "libcuda.so.1"), args)
	return dir
}

// writeKey writes the key that is compiled in as a file in the builder's format.
func writeKey(t *testing.T, header string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte("# made up\n"+strings.Join(madeUp, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	b, err := exec.Command("../scripts/runtime-key", file).Output()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(header, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func compile(t *testing.T, out string, args []string) {
	t.Helper()
	args = append([]string{"-std=gnu11", "-Wall", "-Wextra", "-Werror", "-pthread", "-I../guest/include", "-o", out}, args...)
	if said, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
		t.Fatalf("compile %s: %v\n%s", out, err, said)
	}
}

// runtimeLookups returns a runtime's look-ups, one a line, with the expected results: every name in the newest ABI of
// the runtime, once more for the per-thread stream where that differs, and some that no driver has.
func runtimeLookups(t *testing.T, runtime int) string {
	t.Helper()
	b, err := os.ReadFile("../cuda/spec/driver_api.json")
	if err != nil {
		t.Fatal(err)
	}
	type row [2]any // version, symbol
	var api struct {
		GetProcAddress []struct {
			Name              string
			Legacy, PerThread []row
		}
	}
	if err := json.Unmarshal(b, &api); err != nil {
		t.Fatal(err)
	}
	var s strings.Builder
	ask := func(name string, rows []row, least, flags int) {
		for i := len(rows) - 1; i >= 0; i-- {
			if v := int(rows[i][0].(float64)); v <= runtime {
				fmt.Fprintf(&s, "%s %d %d %s\n", name, max(v, least), flags, rows[i][1])
				return
			}
		}
	}
	for _, n := range api.GetProcAddress {
		ask(n.Name, n.Legacy, 0, 0)
		ask(n.Name, n.PerThread, 7000, 2)
	}
	s.WriteString("cuNothing 2000 0 -\ncuNothing 7000 2 -\ncuMemAlloc_v2 3020 0 -\n")
	return s.String()
}
