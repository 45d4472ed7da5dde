package kvm

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"pegasus/guest/agent"
)

// mkfsTime is how long mkfs.ext4 may take; it writes a few MiB.
var mkfsTime = time.Minute

// SystemDirs are the directories that may contain mkfs.ext4, besides PATH.
var SystemDirs = []string{"/sbin", "/usr/sbin", "/usr/local/sbin", "/bin", "/usr/bin"}

// mkfs makes an empty file system of so many blocks on a device.
func mkfs(device string, blocks uint64) error {
	args := []string{"-q", "-F", "-b", "4096", "-m", "0", "-I", "128", "-O", "^has_journal,^resize_inode",
		"-E", "nodiscard,lazy_itable_init=0", device, fmt.Sprint(blocks)}
	for _, dir := range SystemDirs {
		out, err := agent.Command(mkfsTime, filepath.Join(dir, "mkfs.ext4"), args...)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return fmt.Errorf("mkfs.ext4 %s: %w: %s", device, err, out)
		}
		return nil
	}
	return fmt.Errorf("this machine has no mkfs.ext4 (in %s): install e2fsprogs", strings.Join(SystemDirs, ", "))
}
