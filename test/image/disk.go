package image

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Disk makes a squashfs of the contents with Debian's squashfs-tools, unless dir has one of the same
// contents, and returns its path.
func (c *Contents) Disk(dir, name string) (string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	at := fmt.Sprintf("%s/%s-%s.squashfs", dir, name, c.Sum())
	if _, err := os.Stat(at); err == nil {
		return at, nil
	}
	if err := RemoveAll(filepath.Join(dir, name+"-*.squashfs")); err != nil {
		return "", err
	}
	frame, err := os.MkdirTemp(dir, "disk")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(frame)
	if err := c.makeFrame(frame); err != nil {
		return "", err
	}
	making := fmt.Sprintf("%s.%d", at, os.Getpid())
	mk := exec.Command("mksquashfs", frame, making, "-noappend", "-quiet", "-no-progress", "-all-root", "-comp", "lz4", "-pf", "/dev/stdin")
	mk.Stdin = strings.NewReader(c.pseudoFiles())
	if out, err := mk.CombinedOutput(); err != nil {
		os.Remove(making)
		return "", fmt.Errorf("mksquashfs: %w: %s", err, out)
	}
	return at, os.Rename(making, at)
}

// makeFrame makes the directories of the contents, and those files that aren't the host's.
func (c *Contents) makeFrame(dir string) error {
	for _, name := range slices.Concat(c.names, slices.Collect(maps.Keys(c.Texts))) {
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755); err != nil {
			return err
		}
	}
	for name, text := range c.Texts {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			return err
		}
	}
	return os.Chmod(dir, 0o755)
}

// pseudoFiles returns mksquashfs's list of the host's files, so that they needn't be
// copied together before.
func (c *Contents) pseudoFiles() string {
	var b strings.Builder
	for _, name := range c.names {
		fmt.Fprintf(&b, "%s f 755 0 0 cat '%s'\n", name, c.from[name])
	}
	return b.String()
}

// RemoveAll removes the files that a pattern names.
func RemoveAll(pattern string) error {
	old, err := filepath.Glob(pattern)
	if err != nil {
		return err
	}
	for _, o := range old {
		if err := os.Remove(o); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
