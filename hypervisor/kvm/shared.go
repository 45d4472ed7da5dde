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

// A region that is a PCI device, ivshmem-plain, is a file that libvirt wants to lie in sharedDir, by
// a name without directories. So it has two: the one where the daemon looks for regions, as all
// regions have, and this.
const sharedDir = "/dev/shm"

// sharedName is what libvirt calls such a region, in a directory of sharedDir: it is its directory's
// name and its own.
func sharedName(region string) string {
	return filepath.Base(filepath.Dir(region)) + "-" + filepath.Base(region)
}

// sharedPath is where its other name is.
func sharedPath(region string) string { return filepath.Join(sharedDir, sharedName(region)) }

// regionNamed is the region in a directory that libvirt calls so.
func regionNamed(name, dir string) (region string, ok bool) {
	machine, ok := strings.CutPrefix(name, filepath.Base(dir)+"-")
	region = filepath.Join(dir, machine)
	return region, ok && filepath.Base(region) == machine && filepath.Dir(region) == filepath.Clean(dir)
}

// Make makes the region of a machine that starts, and what goes with it. Its group is QEMU's.
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

// Remove removes it when the machine has ended.
func (a Attachment) Remove() error {
	err := RemoveRegion(a.Region)
	if a.Device == IVSHMEM && UsedBy(sharedPath(a.Region)) == 0 { // also if the region has been removed
		err = errors.Join(err, remove(sharedPath(a.Region)))
	}
	return err
}

// share gives a region the name by which QEMU finds it. Whatever has that name gives way: where it lies
// everybody may make files.
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

// RemoveRegion removes a region, by all names that it may have, and the socket of its port.
func RemoveRegion(region string) error {
	err := errors.Join(removeShared(sharedPath(region), region), remove(region), remove(PortPath(region)), remove(oldPortPath(region)))
	if err != nil {
		return fmt.Errorf("remove region: %w", err)
	}
	return nil
}

// removeShared removes the other name of a region's file, if it is one.
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
