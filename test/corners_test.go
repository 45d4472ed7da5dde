package test

import (
	"os"
	"testing"
)

// Queries by the CUDA runtime beside regular use, each corner in a process of its own, and once more with the library
// that checks each of its own accesses.
func TestCorners(t *testing.T) {
	t.Parallel()
	h := startHost(t, oneDomain)
	plain, careful := program(t, "corners"), sanitized(t, "corners")
	for _, part := range []string{"attributes", "questions", "advice", "complete", "clusters", "mipmaps", "hostly", "homeless", "coredumps"} {
		t.Run(part, func(t *testing.T) {
			succeed(t, h.guest("one", plain, part))
			cmd := h.guest("one", careful, part)
			cmd.Env = append(os.Environ(), sanitizedEnv(t)...)
			succeed(t, cmd)
		})
	}
}
