package test

import (
	"os"
	"testing"
)

// Programs may have thousands of fat binaries, each of which is loaded on first use.
func TestManyFatBinaries(t *testing.T) {
	succeed(t, startHost(t, oneDomain).guest("one", program(t, "fatbins"), "2500"))
	cmd := startHost(t, oneDomain).guest("one", sanitized(t, "fatbins"), "100")
	cmd.Env = append(os.Environ(), sanitizedEnv(t)...)
	succeed(t, cmd)
}
