package test

import (
	"os"
	"testing"
)

// Every API function in valid calls: alone, while a stream captures, in a context that has failed, and with one invalid
// argument. The program has the table of calls, with the results that CUDA's manual documents.
func TestSweep(t *testing.T) {
	t.Parallel()
	h := startHost(t, oneDomain)
	sweep := program(t, "sweep")
	for _, part := range []string{"plain", "capture", "fault", "late", "nulls"} {
		t.Run(part, func(t *testing.T) {
			t.Parallel()
			cmd := h.guest("one", sweep, part)
			cmd.Env = append(os.Environ(), "PEGASUS_LOG=off")
			succeed(t, cmd)
		})
	}
}

// As above with the library that checks each of its own accesses.
func TestSweepSanitized(t *testing.T) {
	t.Parallel()
	h := startHost(t, oneDomain)
	sweep := sanitized(t, "sweep")
	for _, part := range []string{"capture", "fault", "nulls"} {
		t.Run(part, func(t *testing.T) {
			t.Parallel()
			cmd := h.guest("one", sweep, part)
			cmd.Env = append(append(os.Environ(), "PEGASUS_LOG=off"), sanitizedEnv(t)...)
			succeed(t, cmd)
		})
	}
}
