package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Whoever is strict with what his own files are open to, every user reads what he installs.
func TestInstallForAll(t *testing.T) {
	was := syscall.Umask(0o077)
	defer syscall.Umask(was)
	root := filepath.Join(t.TempDir(), "root")
	var out, errs strings.Builder
	if code := run([]string{"install", "--root", root, "--library", built(t, "guest/libcuda.so.1")}, &out, &errs); code != 0 {
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
