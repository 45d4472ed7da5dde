package kvm

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// sharedDir is the directory in which libvirt expects the file of an ivshmem-plain device, by a name without
// directories. So a region that is one has two paths: that in the daemon's directory of regions, as all regions have,
// and this.
const sharedDir = "/dev/shm"

// sharedName returns the name of such a region in sharedDir: its directory's name and its own.
func sharedName(region string) string {
	return filepath.Base(filepath.Dir(region)) + "-" + filepath.Base(region)
}

// sharedPath returns the second path of a region.
func sharedPath(region string) string { return filepath.Join(sharedDir, sharedName(region)) }

// regionNamed returns the region with the given sharedName in a directory.
func regionNamed(name, dir string) (region string, ok bool) {
	machine, ok := strings.CutPrefix(name, filepath.Base(dir)+"-")
	region = filepath.Join(dir, machine)
	return region, ok && filepath.Base(region) == machine && filepath.Dir(region) == filepath.Clean(dir)
}

// Make creates the region of a starting machine, and the files with it. group is QEMU's.
func (a Attachment) Make(group int) error {
	dir := filepath.Dir(a.Region)
	if pid := UsedBy(a.Region); pid != 0 {
		return fmt.Errorf("the region %s is that of a machine that runs, process %d: rename one of them (virsh domrename), and attach it again", a.Region, pid)
	}
	if err := MakeDir(dir); err != nil {
		return err
	}
	if err := MakePorts(dir); err != nil {
		return err
	}
	if filepath.Base(a.Region) == oldPortsDir && errors.Is(unix.Rmdir(a.Region), unix.ENOTEMPTY) {
		return fmt.Errorf("%s is a directory of ports of machines that an earlier release attached: attach those again, and shut them down", a.Region)
	}
	if pid := UsedBy(sharedPath(a.Region)); a.Device == IVSHMEM && pid != 0 {
		return fmt.Errorf("%s is the memory of a machine that runs, process %d: rename one of them (virsh domrename), and attach it again", sharedPath(a.Region), pid)
	}
	if err := MakeRegion(a.Region, a.Bytes, group); err != nil || a.Device != IVSHMEM {
		return err
	}
	if err := share(a.Region); err != nil {
		return errors.Join(err, remove(a.Region))
	}
	return nil
}

// Remove removes the region and its files after the machine's end.
func (a Attachment) Remove() error {
	err := RemoveRegion(a.Region)
	if a.Device == IVSHMEM && UsedBy(sharedPath(a.Region)) == 0 { // even if the region has been removed
		err = errors.Join(err, remove(sharedPath(a.Region)))
	}
	return err
}

// share creates the path by which QEMU finds a region. It replaces any file there: all users may create files in
// sharedDir.
func share(region string) error {
	making := making(region)
	os.Remove(making)
	err := os.Link(region, making)
	if err == nil {
		if err = os.Rename(making, sharedPath(region)); err != nil {
			os.Remove(making)
		}
	}
	if err != nil {
		return fmt.Errorf("share region: %w", err)
	}
	return nil
}

// RemoveRegion removes a region, by all its paths, and the socket of its port.
func RemoveRegion(region string) error {
	err := errors.Join(removeShared(sharedPath(region), region), remove(region), remove(PortPath(region)), remove(oldPortPath(region)))
	if err != nil {
		return fmt.Errorf("remove region: %w", err)
	}
	return nil
}

// removeShared removes the second path of a region's file, if it is one.
func removeShared(shared, region string) error {
	one, err := os.Lstat(shared)
	if err != nil {
		return nil
	}
	if other, err := os.Lstat(region); err != nil || !os.SameFile(one, other) {
		return nil
	}
	return remove(shared)
}

func remove(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTDIR) {
		return err
	}
	return nil
}
