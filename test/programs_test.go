package test

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// program compiles one of the C programs of this folder against Pegasus's library.
func program(t testing.TB, name string) string {
	t.Helper()
	lib := filepath.Dir(built(t, "guest/libcuda.so"))
	out := filepath.Join(t.TempDir(), name)
	cmd := exec.Command("gcc", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-I../guest/include",
		"programs/"+name+".c", "-L"+lib, "-lcuda", "-o", out)
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("compile %s: %v\n%s", name, err, said)
	}
	return out
}

// Threads of a process that share streams, events and memory observe the order of their calls.
func TestOrder(t *testing.T) {
	h := startHost(t, oneDomain)
	t.Logf("%s", succeed(t, h.guest("one", program(t, "order"), "20000")))
}

// Many processes and threads of one domain mix blocking and queued calls.
func TestManyThreads(t *testing.T) { manyThreads(t, startHost(t, oneDomain), 6, "3") }

func manyThreads(t *testing.T, h *host, processes int, seconds string) {
	mix := program(t, "mix")
	var wg sync.WaitGroup
	var said [64]string
	for i := range processes {
		cmd := h.guest("one", mix, seconds)
		wg.Go(func() {
			out, err := cmd.CombinedOutput()
			said[i] = strings.TrimSpace(string(out))
			if err != nil {
				t.Errorf("process %d: %v\n%s", i, err, out)
			}
		})
	}
	wg.Wait()
	t.Log(fmt.Sprint(said[:processes]))
}

// All blocks of a cooperative launch meet, although there are fewer processors.
func TestCooperativeGrid(t *testing.T) {
	h := startHost(t, oneDomain)
	t.Logf("%s", succeed(t, h.guest("one", program(t, "grid"))))
}
