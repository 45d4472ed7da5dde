package image

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Unpack unpacks Debian's packages into a directory, unless that exists. It installs
// nothing.
func Unpack(root string, packages ...string) error {
	return unpack(root, func() ([]string, error) { return packages, nil })
}

// UnpackOf is Unpack for another release of Debian than this machine's, such as trixie, from the archive of
// this machine's packages.
func UnpackOf(suite, root string, packages ...string) error {
	return unpackBy(suite, root, func() ([]string, error) { return packages, nil })
}

func unpack(root string, packages func() ([]string, error)) error {
	return unpackBy("", root, packages)
}

func unpackBy(suite, root string, packages func() ([]string, error)) error {
	if _, err := os.Stat(root); err == nil {
		return nil
	}
	making := fmt.Sprintf("%s.%d", root, os.Getpid())
	defer os.RemoveAll(making)
	if err := fetch(suite, making, packages); err != nil {
		return fmt.Errorf("get Debian's packages for %s: %w", root, err)
	}
	return os.Rename(filepath.Join(making, "root"), root)
}

// fetch downloads packages to a directory, and unpacks them in its root.
func fetch(suite, dir string, packages func() ([]string, error)) error {
	root := filepath.Join(dir, "root")
	if err := os.MkdirAll(root, 0o755); err != nil {
		return err
	}
	options, err := aptOptions(suite, dir)
	if err != nil {
		return err
	}
	err = download(dir, options, packages)
	if err != nil { // apt's lists may be old, or empty
		if out, err := exec.Command("apt-get", append(options, "-q", "update")...).CombinedOutput(); err != nil {
			return fmt.Errorf("apt-get update: %w: %s", err, out)
		}
		err = download(dir, options, packages)
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

// mirror returns the URI of the archive of this machine's release, not that of an additional source.
func mirror() (string, error) {
	out, err := exec.Command("apt-get", "indextargets", "--format", "$(RELEASE) $(REPO_URI)", "Created-By: Packages").Output()
	if err != nil {
		return "", fmt.Errorf("apt-get indextargets: %w", err)
	}
	for line := range strings.Lines(string(out)) {
		release, uri, ok := strings.Cut(strings.TrimSpace(line), " ")
		if ok && !strings.ContainsAny(release, "-/") {
			return uri, nil
		}
	}
	return "", fmt.Errorf("apt knows no packages of a release of Debian: %q", out)
}

// aptOptions returns the options that make apt use another release of Debian alone, with its state under a directory; none for
// this machine's release.
func aptOptions(suite, dir string) ([]string, error) {
	if suite == "" {
		return nil, nil
	}
	from, err := mirror()
	if err != nil {
		return nil, err
	}
	if dir, err = filepath.Abs(filepath.Join(dir, "apt")); err != nil {
		return nil, err
	}
	for _, sub := range []string{"lists/partial", "cache/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return nil, err
		}
	}
	sources := filepath.Join(dir, "sources.list")
	return []string{
		"-o", "Dir::Etc::sourcelist=" + sources, "-o", "Dir::Etc::sourceparts=-", "-o", "Dir::State::lists=" + filepath.Join(dir, "lists"),
		"-o", "Dir::State::status=/dev/null", "-o", "Dir::Cache=" + filepath.Join(dir, "cache"), "-o", "APT::Sandbox::User=root",
	}, os.WriteFile(sources, []byte("deb "+from+" "+suite+" main\n"), 0o644)
}

func download(dir string, options []string, packages func() ([]string, error)) error {
	names, err := packages()
	if err != nil {
		return err
	}
	get := exec.Command("apt-get", slices.Concat(options, []string{"-q", "download"}, names)...)
	get.Dir = dir
	if out, err := get.CombinedOutput(); err != nil {
		return fmt.Errorf("apt-get download: %w: %s", err, out)
	}
	return nil
}
