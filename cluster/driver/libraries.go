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
		if err := install(filepath.Join(from, name), filepath.Join(to, name)); err != nil {
			return fmt.Errorf("install library: %w", err)
		}
	}
	return nil
}

// install replaces a file by a copy of another, unless they are equal: a container's mount keeps the file that it has.
func install(from, to string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if has, err := os.ReadFile(to); err == nil && bytes.Equal(has, text) {
		return nil
	}
	if err := os.WriteFile(to+".new", text, 0o644); err != nil {
		return err
	}
	return os.Rename(to+".new", to)
}
