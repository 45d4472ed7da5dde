package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"pegasus/internal/testkit"
)

// Every user can read the installed files, even under a strict umask.
func TestInstallForAll(t *testing.T) {
	was := syscall.Umask(0o077)
	defer syscall.Umask(was)
	root := filepath.Join(t.TempDir(), "an image's root")
	var out, errs strings.Builder
	for _, wrong := range []string{root, "", "/dev/null"} {
		if code := run([]string{"install", "--dry-run", "--root", wrong, "--library", testkit.Built(t, "guest/libcuda.so.1")}, &out, &errs); code != 2 || out.String() != "" {
			t.Errorf("--root %q: status %d: %s", wrong, code, out.String())
		}
	}
	// With glibc, a shell command makes the loader's cache.
	config := filepath.Join(root, "etc/ld.so.conf")
	syscall.Umask(0o022)
	if err := os.MkdirAll(filepath.Dir(config), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(config, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	syscall.Umask(0o077)
	if code := run([]string{"install", "--root", root, "--library", testkit.Built(t, "guest/libcuda.so.1")}, &out, &errs); code != 0 {
		t.Fatalf("status %d: %s", code, errs.String())
	}
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err == nil && info.Mode().Perm()&0o044 != 0o044 {
			t.Errorf("%s: %v", path, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if code := run([]string{"install", "--root", root, "--uninstall"}, &out, &errs); code != 0 {
		t.Fatalf("status %d: %s", code, errs.String())
	}
	if _, err := os.Stat(filepath.Join(root, "usr/local/bin/pegasus-guest")); err == nil {
		t.Error("the program is left")
	}
}
