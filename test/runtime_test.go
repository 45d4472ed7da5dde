package test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
)

// A client that comes up as the CUDA runtime in programs does: it looks up the whole
// API in the versions that it was made for, goes without the tables of no manual, and
// launches a kernel.
func TestRuntimeComesUp(t *testing.T) {
	h := startHost(t, oneDomain)
	plain, careful := program(t, "runtime"), sanitized(t, "runtime")
	for _, version := range []int{11080, 12010, 12040} {
		t.Run(fmt.Sprint(version), func(t *testing.T) {
			lookups := runtimeLookups(t, version)
			if n := strings.Count(lookups, "\n"); n < 470 && version >= 12010 { // what one of 12.1 was seen to ask
				t.Fatalf("only %d look-ups", n)
			}
			cmd := h.guest("one", plain, fmt.Sprint(version))
			cmd.Stdin = strings.NewReader(lookups)
			t.Logf("%s", succeed(t, cmd))
			cmd = h.guest("one", careful, fmt.Sprint(version))
			cmd.Stdin = strings.NewReader(lookups)
			cmd.Env = append(os.Environ(), sanitizedEnv(t)...)
			succeed(t, cmd)
		})
	}
}

// runtimeLookups are a runtime's, one a line, and what is right: every name in the newest ABI
// that the runtime knows, once more for the per-thread stream where that differs, and
// some that no driver has.
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
