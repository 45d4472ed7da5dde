package cuda_test

import (
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"pegasus/cuda"
)

// Tests of the C side of this package's data against the same facts. The guest library is built here, so that
// the tests see the current tree.

const (
	guestSource  = "../guest/libcuda"
	guestInclude = "../guest/include"
)

// compiler returns the C compiler, or skips the test without one.
func compiler(t *testing.T) string {
	t.Helper()
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Fatal("gcc is not installed; `make deps` installs it")
	}
	return cc
}

func command(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", filepath.Base(name), strings.Join(args, " "), err, out)
	}
	return string(out)
}

var cFlags = []string{"-std=gnu11", "-Wall", "-Wextra", "-Werror", "-I" + guestSource, "-I" + guestInclude}

// buildProgram compiles a program of testdata/c.
func buildProgram(t *testing.T, source string, flags ...string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), strings.TrimSuffix(source, ".c"))
	args := append(slices.Clone(cFlags), "-o", program, filepath.Join("testdata/c", source))
	command(t, compiler(t), append(args, flags...)...)
	return program
}

// library returns the guest library, built once for all tests, in a directory that TestMain removes; every
// symbol of it is resolved.
var library = sync.OnceValues(func() (string, error) {
	sources, err := filepath.Glob(filepath.Join(guestSource, "*", "*.c"))
	if err != nil {
		return "", err
	}
	args := append(slices.Clone(cFlags), "-shared", "-fPIC", "-fvisibility=hidden", "-pthread", "-Wl,-z,defs", "-Wl,-soname,libcuda.so.1",
		"-Wl,--version-script="+filepath.Join(guestSource, "api", "zz_libcuda.map"), "-o", filepath.Join(libraryDir, "libcuda.so.1"))
	if out, err := exec.Command("cc", append(args, sources...)...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return libraryDir, os.Symlink("libcuda.so.1", filepath.Join(libraryDir, "libcuda.so"))
})

var libraryDir string

func TestMain(m *testing.M) {
	var err error
	if libraryDir, err = os.MkdirTemp("", "libcuda"); err != nil {
		panic(err)
	}
	code := m.Run()
	os.RemoveAll(libraryDir)
	os.Exit(code)
}

// buildLibrary returns the directory of the guest library.
func buildLibrary(t *testing.T) string {
	t.Helper()
	compiler(t)
	dir, err := library()
	if err != nil {
		t.Fatalf("guest library: %v", err)
	}
	return dir
}

// fakeCore returns a directory with the generated part of the guest library and, in fake.c, all functions
// behind it that the program does not define: they succeed and do nothing.
func fakeCore(t *testing.T, program string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	generated, err := filepath.Glob(filepath.Join(guestSource, "*", "zz_*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range generated {
		layer := filepath.Join(dir, filepath.Base(filepath.Dir(path)))
		if err := os.MkdirAll(layer, 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(layer, filepath.Base(path)), read(t, path))
	}
	write(t, filepath.Join(dir, "core", "device.h"), "static inline int device_driver_version(void) { return CUDA_VERSION; }\n")
	write(t, filepath.Join(dir, "api", "entry.h"), `#include "cuda.h"
#define ENTER_UNSAFE 1
extern CUresult entry_result;
static inline CUresult pg_enter(int flags) { return flags & ~ENTER_UNSAFE ? CUDA_ERROR_UNKNOWN : entry_result; }
CUresult pg_unsupported(const char *symbol);
`)
	defined := read(t, program) + read(t, filepath.Join(dir, "api", "zz_names.c")) + read(t, filepath.Join(dir, "api", "zz_resolver.c"))
	fakes := "#include \"core/zz_impl.h\"\n#pragma GCC diagnostic ignored \"-Wunused-parameter\"\n"
	for line := range strings.Lines(read(t, filepath.Join(dir, "core", "zz_impl.h"))) {
		prototype, ok := strings.CutSuffix(strings.TrimSpace(line), ";")
		name, _, _ := strings.Cut(strings.TrimPrefix(prototype, "CUresult "), "(")
		if ok && strings.HasPrefix(name, "pg_") && !strings.Contains(defined, "\nCUresult "+name+"(") {
			fakes += prototype + " { return CUDA_SUCCESS; }\n"
		}
	}
	write(t, filepath.Join(dir, "fake.c"), fakes)
	return dir
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestExportsConvert(t *testing.T) {
	cc := compiler(t)
	const source = "testdata/c/exports_test.c"
	dir := fakeCore(t, source)
	program := filepath.Join(dir, "exports_test")
	args := []string{"-std=gnu11", "-Wall", "-Wextra", "-Werror", "-fsanitize=address,undefined", "-g", "-I" + dir, "-I" + guestInclude, "-o", program, source}
	for _, name := range []string{"api/zz_exports.c", "api/zz_names.c", "api/zz_resolver.c", "fake.c"} {
		args = append(args, filepath.Join(dir, name))
	}
	command(t, cc, args...)
	t.Logf("%s", command(t, program))
}

func TestCRecordsAreGolden(t *testing.T) {
	printed := map[string]string{}
	for line := range strings.Lines(command(t, buildProgram(t, "zz_wire_test.c"))) {
		name, bytes, _ := strings.Cut(strings.TrimSpace(line), " ")
		printed[name] = bytes
	}
	for _, g := range goldenRecords {
		if g.fixed == 0 {
			continue
		}
		want := hex.EncodeToString(golden(t, g.name)[:g.fixed])
		if printed[g.name] != want {
			t.Errorf("%s in C is\n%s, want\n%s", g.name, printed[g.name], want)
		}
	}
}

func TestHeaderHasTheFactsLayouts(t *testing.T) {
	command(t, compiler(t), append(slices.Clone(cFlags), "-fsyntax-only", "testdata/c/zz_abi_test.c")...)
}

func TestHeaderIsCPlusPlus(t *testing.T) {
	cxx, err := exec.LookPath("c++")
	if err != nil {
		t.Fatal("g++ is not installed; `make deps` installs it")
	}
	command(t, cxx, "-std=c++11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-x", "c++", filepath.Join(guestInclude, "cuda.h"), "-Wno-pragma-once-outside-header")
}

// A program that includes the header gets the ABI that CUDA 12.4 gives it, and
// with per-thread default streams if it selects them.
func TestHeaderVersions(t *testing.T) {
	source := filepath.Join(t.TempDir(), "program.c")
	text := "#include <cuda.h>\nvoid *f[] = {(void *)cuInit, (void *)cuCtxCreate, (void *)cuMemAlloc, (void *)cuMemcpyHtoD, (void *)cuLaunchKernel, (void *)cuEventQuery};\n"
	write(t, source, text)
	for define, want := range map[string]string{
		"PLAIN":                              "cuCtxCreate_v2 cuEventQuery cuInit cuLaunchKernel cuMemAlloc_v2 cuMemcpyHtoD_v2",
		"CUDA_API_PER_THREAD_DEFAULT_STREAM": "cuCtxCreate_v2 cuEventQuery cuInit cuLaunchKernel_ptsz cuMemAlloc_v2 cuMemcpyHtoD_v2_ptds",
		"__CUDA_API_VERSION_INTERNAL":        "cuCtxCreate cuEventQuery cuInit cuLaunchKernel cuMemAlloc cuMemcpyHtoD",
	} {
		object := filepath.Join(t.TempDir(), "program.o")
		command(t, compiler(t), append(slices.Clone(cFlags), "-D"+define, "-c", "-o", object, source)...)
		if got := strings.Join(symbolsOf(t, "-u", object), " "); got != want {
			t.Errorf("%s: %s, want %s", define, got, want)
		}
	}
}

// symbolsOf returns the names that nm prints, sorted.
func symbolsOf(t *testing.T, option, file string) []string {
	t.Helper()
	var names []string
	for line := range strings.Lines(command(t, "nm", option, file)) {
		fields := strings.Fields(line)
		names = append(names, fields[len(fields)-1])
	}
	slices.Sort(names)
	return names
}

// The library exports the symbols of the table, and our own extensions, and no others.
func TestLibraryExportsTheTable(t *testing.T) {
	var want []string
	for _, s := range cuda.Symbols() {
		want = append(want, s.Name)
	}
	want = append(want, "cuShmGet", "cuShmAt", "cuShmDt", "cuShmCtl") // guest/include/cuda_shm.h
	slices.Sort(want)
	file := filepath.Join(buildLibrary(t), "libcuda.so.1")
	var got []string
	for line := range strings.Lines(command(t, "nm", "-D", "--defined-only", file)) {
		fields := strings.Fields(line)
		if kind := fields[1]; kind != "T" {
			t.Errorf("%s is of kind %s", fields[2], kind)
		}
		if strings.Contains(fields[2], "@") {
			t.Errorf("%s has a version", fields[2])
		}
		got = append(got, fields[2])
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("%d symbols, want %d", len(got), len(want))
		for _, name := range want {
			if !slices.Contains(got, name) {
				t.Errorf("%s is missing", name)
			}
		}
		for _, name := range got {
			if !slices.Contains(want, name) {
				t.Errorf("%s should be hidden", name)
			}
		}
	}
}

func TestResolverAnswersTheTable(t *testing.T) {
	dir := buildLibrary(t)
	program := buildProgram(t, "zz_resolver_test.c", "-L"+dir, "-lcuda", "-Wl,-rpath,"+dir)
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), "PEGASUS_SOCKET="+filepath.Join(dir, "nobody"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
}

// Without a host there is no device: all symbols except the few that may come before cuInit return that the
// driver is not initialised, for any arguments.
func TestAbsurdCallsWithoutHost(t *testing.T) {
	dir, program := buildLibrary(t), filepath.Join(t.TempDir(), "absurd")
	command(t, compiler(t), append(slices.Clone(cFlags), "-pthread", "-o", program, "../test/programs/absurd.c", "-L"+dir, "-lcuda", "-Wl,-rpath,"+dir)...)
	cmd := exec.Command(program, "none")
	cmd.Env = slices.DeleteFunc(os.Environ(), func(s string) bool { return strings.HasPrefix(s, "PEGASUS_") })
	out, err := cmd.Output()
	if want := fmt.Sprintf(" calls of %d symbols ", cuda.Coverage(0).Symbols); err != nil || !strings.Contains(string(out), want) {
		t.Errorf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
}

func TestCoverage(t *testing.T) {
	all := cuda.Coverage(0)
	if all.Symbols != 693 || all.Implemented()+all.Stubs != all.Symbols {
		t.Errorf("%+v", all)
	}
	var tiers cuda.CoverageCounts
	for tier := 1; tier <= 3; tier++ {
		c := cuda.Coverage(tier)
		tiers.Symbols += c.Symbols
		tiers.Local += c.Local
		tiers.Forwarded += c.Forwarded
		tiers.Stubs += c.Stubs
	}
	if tiers != all {
		t.Errorf("tiers sum to %+v, want %+v", tiers, all)
	}
	for _, s := range cuda.Symbols() {
		if s.Programs != "" && strings.Contains(s.Programs, "ffmpeg filters") && s.Kind == cuda.SymbolStub {
			t.Errorf("ffmpeg's filters call %s, which is a stub", s.Name)
		}
	}
}
