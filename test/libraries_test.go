package test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

var libraryParts = []string{"early", "contexts", "images", "options", "attributes", "threads", "fork"}

// Libraries of CUDA 12 and their kernels, each corner in a process of its own.
func TestLibraries(t *testing.T) {
	h := startHost(t, oneDomain)
	libraries := program(t, "libraries")
	for _, part := range libraryParts {
		t.Run(part, func(t *testing.T) { succeed(t, h.guest("one", libraries, part)) })
	}
}

// As above with the library that checks each of its own accesses.
func TestLibrariesSanitized(t *testing.T) {
	h := startHost(t, oneDomain)
	libraries := sanitized(t, "libraries")
	for _, part := range libraryParts {
		t.Run(part, func(t *testing.T) {
			cmd := h.guest("one", libraries, part)
			cmd.Env = append(os.Environ(), sanitizedEnv(t)...)
			succeed(t, cmd)
		})
	}
}

// sanitized returns a program built with the sanitizers, for runs with sanitizedEnv.
func sanitized(t testing.TB, name string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	cmd := exec.Command("gcc", "-std=gnu11", "-O1", "-g", "-fsanitize=address,undefined", "-pthread", "-I../guest/include",
		"programs/"+name+".c", "-L"+filepath.Dir(built(t, "guest/asan/libcuda.so")), "-lcuda", "-o", path)
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	return path
}

func sanitizedEnv(t testing.TB) []string {
	return []string{"PEGASUS_LIBCUDA=" + filepath.Dir(built(t, "guest/asan/libcuda.so")), "ASAN_OPTIONS=detect_leaks=0",
		"UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1"}
}
