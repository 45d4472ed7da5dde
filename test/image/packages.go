package image

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Unpack unpacks Debian's packages into a directory, unless that is there. Nothing is
// installed.
func Unpack(root string, packages ...string) error {
	return unpack(root, func() ([]string, error) { return packages, nil })
}

func unpack(root string, packages func() ([]string, error)) error {
	if _, err := os.Stat(root); err == nil {
		return nil
	}
	making := fmt.Sprintf("%s.%d", root, os.Getpid())
	defer os.RemoveAll(making)
	if err := fetch(making, packages); err != nil {
		return fmt.Errorf("get Debian's packages for %s: %w", root, err)
	}
	return os.Rename(filepath.Join(making, "root"), root)
}

// fetch downloads packages to a directory, and unpacks them in its root.
func fetch(dir string, packages func() ([]string, error)) error {
	root := filepath.Join(dir, "root")
	if err := os.MkdirAll(root, 0o755); err != nil {
		return err
	}
	err := download(dir, packages)
	if err != nil { // what apt knows may be old, or nothing
		if out, err := exec.Command("apt-get", "-q", "update").CombinedOutput(); err != nil {
			return fmt.Errorf("apt-get update: %w: %s", err, out)
		}
		err = download(dir, packages)
	}
	if err != nil {
		return err
	}
	debs, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err != nil {
		return err
	}
	for _, deb := range debs {
		if out, err := exec.Command("dpkg-deb", "-x", deb, root).CombinedOutput(); err != nil {
			return fmt.Errorf("dpkg-deb: %w: %s", err, out)
		}
	}
	return nil
}

func download(dir string, packages func() ([]string, error)) error {
	names, err := packages()
	if err != nil {
		return err
	}
	get := exec.Command("apt-get", append([]string{"-q", "download"}, names...)...)
	get.Dir = dir
	if out, err := get.CombinedOutput(); err != nil {
		return fmt.Errorf("apt-get download: %w: %s", err, out)
	}
	return nil
}
