package image

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Witness compiles the program that computes in machines all the time, and says so (test/programs/witness.c). build
// is what `make build` fills. It is for tests in folders beside that one.
func Witness(build string) (path string, err error) {
	path = filepath.Join(build, "vm", "witness")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", err
	}
	making := fmt.Sprintf("%s.%d", path, os.Getpid())
	cmd := exec.Command("gcc", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-I../../guest/include",
		"../programs/witness.c", "-L"+filepath.Join(build, "guest"), "-lcuda", "-o", making)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the witness: %w: %s", err, out)
	}
	return path, os.Rename(making, path)
}
