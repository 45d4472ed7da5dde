package setup

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// hasSystemd reports whether the machine runs systemd.
func (s *Setup) hasSystemd() bool {
	for _, path := range []string{"/run/systemd/system", "/usr/lib/systemd/systemd", "/lib/systemd/systemd"} {
		if _, err := os.Stat(s.at(path)); err == nil {
			return true
		}
	}
	return false
}

// live reports whether the machine is this one, and systemd runs it.
func (s *Setup) live() bool {
	_, err := os.Stat("/run/systemd/system")
	return s.here() && err == nil
}

func (s *Setup) here() bool { return s.at("/") == "/" }

// settle runs the commands that must follow the installation of the files.
func (s *Setup) settle(changed bool) error {
	if err := s.loaderCache(); err != nil {
		return err
	}
	switch {
	case s.live() && changed:
		// Running programs keep their workers while the agent restarts.
		return s.all("systemctl daemon-reload", "systemctl start "+socketUnit, "systemctl restart "+serviceUnit)
	case s.live():
		return s.all("systemctl start " + socketUnit + " " + serviceUnit)
	case !s.hasSystemd():
		s.say("There is no systemd here: see to it that `%s agent` is started at boot, as root.", Program)
	}
	return nil
}

// stop ends the agent and removes its mounts.
func (s *Setup) stop() error {
	if s.live() {
		if _, err := os.Stat(s.at(unitDir + "/" + serviceUnit)); err == nil {
			if err := s.all("systemctl stop " + socketUnit + " " + serviceUnit); err != nil {
				return err
			}
		}
	}
	if !s.here() || s.DryRun {
		return nil
	}
	err := unix.Unmount(RegionDir, unix.UMOUNT_NOFOLLOW)
	if errors.Is(err, unix.EBUSY) {
		s.say("%s stays mounted: CUDA programs still run, or an agent does that wasn't started by systemd", RegionDir)
	}
	return nil
}

// loaderCache updates the dynamic loader's cache.
func (s *Setup) loaderCache() error {
	if s.here() {
		return s.all("ldconfig")
	}
	if _, err := os.Stat(s.at("/etc/ld.so.conf")); err != nil {
		return nil // not a glibc system
	}
	return s.all("ldconfig -r '" + strings.ReplaceAll(s.at("/"), "'", `'\''`) + "'")
}

// all runs commands, up to the first error.
func (s *Setup) all(commands ...string) error {
	for _, command := range commands {
		if s.DryRun {
			s.say("would run     %s", command)
			continue
		}
		s.say("ran           %s", command)
		cmd := exec.Command("sh", "-c", "PATH=$PATH:/usr/sbin:/sbin; "+command)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", command, err, bytes.TrimSpace(out))
		}
	}
	return nil
}

// usualDirs are the loader's default directories.
var usualDirs = []string{"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib",
	"/usr/local/lib/x86_64-linux-gnu", "/usr/local/lib64", "/usr/local/lib"}

// otherLibrary returns the path of a libcuda.so.1 of other origin that the machine's programs find, or "".
func (s *Setup) otherLibrary() string {
	dirs := slices.Clone(usualDirs)
	more, _ := filepath.Glob(s.at("/etc/ld.so.conf.d/*.conf"))
	for _, file := range append(more, s.at("/etc/ld.so.conf")) {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(text)) {
			line, _, _ = strings.Cut(strings.TrimSpace(line), "#")
			if filepath.IsAbs(line) {
				dirs = append(dirs, strings.TrimSpace(line))
			}
		}
	}
	for _, dir := range dirs {
		path := s.at(filepath.Join(dir, LibraryName))
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if ours, err := IsOurs(path); err != nil || !ours {
			return path
		}
	}
	return ""
}
