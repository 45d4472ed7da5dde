package driver

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"

	"pegasus/guest/setup"
)

// InstallLibraries copies the CUDA libraries from a directory to another, such as from an image to the node. Programs
// that have loaded an earlier library keep it.
func InstallLibraries(from, to string) error {
	if err := os.MkdirAll(to, 0o755); err != nil {
		return fmt.Errorf("install libraries: %w", err)
	}
	for _, name := range []string{setup.LibraryName, setup.MonitorName} {
		if err := install(filepath.Join(from, name), filepath.Join(to, name), 0o644); err != nil {
			return fmt.Errorf("install library: %w", err)
		}
	}
	return nil
}

// InstallHook copies the hook of KubeVirt, which lies beside this program, into a directory of the node, and returns the
// copy's path.
func InstallHook(to string) (path string, err error) {
	self, err := os.Executable()
	if err == nil {
		path = filepath.Join(to, hookProgram)
		err = install(filepath.Join(filepath.Dir(self), hookProgram), path, 0o755)
	}
	if err != nil {
		return "", fmt.Errorf("install hook of KubeVirt: %w", err)
	}
	return path, nil
}

const hookProgram = "pegasus-kubevirt"

// install replaces a file by a copy of another, unless they are equal: a container's mount keeps the file that it has.
func install(from, to string, mode os.FileMode) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if has, err := os.ReadFile(to); err == nil && bytes.Equal(has, text) {
		return nil
	}
	if err := os.WriteFile(to+".new", text, mode); err != nil {
		return err
	}
	return os.Rename(to+".new", to)
}
