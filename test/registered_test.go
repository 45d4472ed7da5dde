package test

import (
	"os"
	"testing"
)

// Kernels use host memory that a program registered, each part in a process of its own, and once more with the library that
// checks each of its own accesses.
func TestRegisteredMemory(t *testing.T) {
	t.Parallel()
	h := startHost(t, oneDomain)
	plain, careful := program(t, "registered"), sanitized(t, "registered")
	for _, part := range []string{"mapped", "written", "forked", "refused", "snapshot", "locks", "left", "leaving", "crowded"} {
		t.Run(part, func(t *testing.T) {
			succeed(t, h.guest("one", plain, part))
			cmd := h.guest("one", careful, part)
			cmd.Env = append(os.Environ(), sanitizedEnv(t)...)
			succeed(t, cmd)
		})
	}
}

// A driver that does not map host memory for kernels at the program's addresses: Pegasus's own library, in the place of
// NVIDIA's, is one.
func TestRegisteredMemoryOnNVIDIA(t *testing.T) {
	succeed(t, startNVIDIA(t, oneDomain).guest("one", program(t, "registered"), "absent"))
}
