package kvm

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	wire "pegasus/callbuf/region"
)

// regionUnit divides a region's size: the guest's kernel maps persistent memory in such pieces.
const regionUnit = 2 << 20

// making returns the temporary path of a region before its rename, which differs from every other machine's.
func making(region string) string {
	return filepath.Join(filepath.Dir(region), "."+filepath.Base(region)+".new")
}

// minRegion holds the guest's own bookkeeping and a segment.
const minRegion = 16 << 20

// CheckSize returns an error for an invalid region size.
func CheckSize(bytes uint64) error {
	if bytes < minRegion || bytes%regionUnit != 0 {
		return errors.New("want a multiple of 2 MiB, from 16 MiB on")
	}
	return nil
}

// MakeRegion creates the file that becomes a machine's NVDIMM. All of its memory is allocated at once: a guest that
// found none left later would be killed by a bus error. The file's group may write to it, for QEMU; -1 keeps the
// group.
func MakeRegion(path string, bytes uint64, group int) (err error) {
	if err := CheckSize(bytes); err != nil {
		return fmt.Errorf("region of %d bytes: %w", bytes, err)
	}
	making := making(path)
	os.Remove(making)
	f, err := os.OpenFile(making, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("make region: %w", err)
	}
	defer f.Close()
	defer func() {
		if err != nil {
			os.Remove(making)
		}
	}()
	if err := unix.Fallocate(int(f.Fd()), 0, 0, int64(bytes)); err != nil {
		return fmt.Errorf("make region %s of %d MiB: %w%s", path, bytes>>20, err, room(filepath.Dir(path)))
	}
	if _, err := f.WriteAt(wire.Mark(), int64(bytes-wire.PageBytes)); err != nil {
		return fmt.Errorf("make region: %w", err)
	}
	if err := f.Chown(-1, group); err != nil {
		return fmt.Errorf("make region: %w", err)
	}
	if err := f.Chmod(0o660); err != nil {
		return fmt.Errorf("make region: %w", err)
	}
	if err := os.Rename(making, path); err != nil {
		return fmt.Errorf("make region: %w", err)
	}
	return nil
}

// CheckRoom returns an error for a region that is larger than its whole file system. The directory need not exist
// yet.
func CheckRoom(region string, bytes uint64) error {
	var fs unix.Statfs_t
	dir := filepath.Dir(region)
	for unix.Statfs(dir, &fs) != nil {
		if dir == filepath.Dir(dir) {
			return nil
		}
		dir = filepath.Dir(dir)
	}
	if all := fs.Blocks * uint64(fs.Bsize); all != 0 && bytes > all { // a file system without a limit has none
		return fmt.Errorf("region %s of %d MiB: the file system has %d MiB in all: attach the machine with less --memory, or make it larger (mount -o remount,size=… %s)",
			region, bytes>>20, all>>20, mountOf(dir))
	}
	return nil
}

// mountOf returns the mount point of a directory's file system.
func mountOf(dir string) string {
	var of, parent unix.Stat_t
	for unix.Lstat(dir, &of) == nil && unix.Lstat(filepath.Dir(dir), &parent) == nil && of.Dev == parent.Dev && dir != filepath.Dir(dir) {
		dir = filepath.Dir(dir)
	}
	return dir
}

// room returns a message with a directory's free space.
func room(dir string) string {
	var fs unix.Statfs_t
	if unix.Statfs(dir, &fs) != nil {
		return ""
	}
	return fmt.Sprintf(": there is room for %d MiB; give the machine less (pegasus attach --memory, or the region of its claim), or mount more there", fs.Bavail*uint64(fs.Bsize)>>20)
}

// MakeDir creates the directory of regions, and rejects one in which another user could create files: its parent may
// be writable for all, and a file in it counts as a machine.
func MakeDir(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return err
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		return fmt.Errorf("%s is not a directory: remove it", dir)
	case int(st.Uid) != os.Geteuid() || st.Mode&0o022 != 0:
		return fmt.Errorf("%s belongs to user %d with mode %#o, so that others could put machines there: remove it", dir, st.Uid, st.Mode&0o777)
	}
	return nil
}
