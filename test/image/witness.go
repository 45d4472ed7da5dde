package image

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Witness compiles the program that computes in machines all the time, and prints its progress (test/programs/witness.c).
// build is the directory that `make build` fills.
func Witness(build string) (path string, err error) {
	if build, err = filepath.Abs(build); err != nil {
		return "", err
	}
	out, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("find the project's files: %w", err)
	}
	path = filepath.Join(build, "vm", "witness")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", err
	}
	making := fmt.Sprintf("%s.%d", path, os.Getpid())
	cmd := exec.Command("gcc", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-Iguest/include",
		"test/programs/witness.c", "-L"+filepath.Join(build, "guest"), "-lcuda", "-o", making)
	cmd.Dir = filepath.Dir(strings.TrimSpace(string(out)))
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the witness: %w: %s", err, out)
	}
	return path, os.Rename(making, path)
}
