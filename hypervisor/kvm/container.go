package kvm

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// A machine in a container, such as a pod of KubeVirt, has its region as a file of the container. The region itself
// lies in the daemon's directory of regions, where the container can't replace it; the container has two mounts of the
// file, and a read-only mount of the folder with the socket at which the hub serves the port. So nothing that the
// container can write is ever opened by path on the host.

// ContainerRegion is the place of the region in a container, which has one machine.
const ContainerRegion = sharedDir + "/pegasus/machine"

// Mount is a mount of a file or a folder of the host in a machine's container.
type Mount struct {
	From, To string
	ReadOnly bool
}

// ContainerMounts returns the mounts of a region, for either kind of device.
func ContainerMounts(region string) []Mount {
	return []Mount{
		{From: region, To: ContainerRegion},
		{From: region, To: sharedPath(ContainerRegion)},
		{From: PortPath(region), To: filepath.Dir(PortPath(ContainerRegion)), ReadOnly: true},
	}
}

// servedPort returns the path of the socket at which the hub serves a region's port, and whether it serves one: the
// port's path is a folder then.
func servedPort(region string) (path string, serves bool) {
	info, err := os.Lstat(PortPath(region))
	return filepath.Join(PortPath(region), filepath.Base(ContainerRegion)), err == nil && info.IsDir()
}

// InContainer reports whether a region is that of a machine in a container.
func InContainer(region string) bool {
	_, serves := servedPort(region)
	return region != "" && serves
}

// MakeContainerRegion creates a region for a container and the folder of its port, as far as they are missing. An
// existing region is kept: a machine may use it. group is that of QEMU in the container. A region of another size is
// an error.
func MakeContainerRegion(region string, bytes uint64, group int) error {
	dir, port := filepath.Dir(region), PortPath(region)
	if err := MakeDir(dir); err != nil {
		return err
	}
	if err := MakePorts(dir); err != nil {
		return err
	}
	socket := filepath.Join(port, filepath.Base(ContainerRegion))
	if len(socket) > maxSocketPath {
		return fmt.Errorf("region %s: the path of its port, %s, has %d bytes, and a socket's may have %d: use a shorter directory of regions", region, socket, len(socket), maxSocketPath)
	}
	if err := MakeDir(port); err != nil { // before the region, at which the daemon starts a hub
		return err
	}
	if err := os.Chmod(port, 0o755); err != nil { // QEMU's user looks for the socket there
		return err
	}
	var st unix.Stat_t
	switch err := unix.Lstat(region, &st); {
	case errors.Is(err, unix.ENOENT):
		return MakeRegion(region, bytes, group)
	case err != nil:
		return fmt.Errorf("region %s: %w", region, err)
	case st.Mode&unix.S_IFMT != unix.S_IFREG || st.Size < 0 || uint64(st.Size) != bytes:
		return fmt.Errorf("region %s: it is no file of %d bytes (mode %#o, %d bytes): end its machine, and remove it", region, bytes, st.Mode, st.Size)
	}
	return nil
}

// ContainerRegions returns the regions of containers in a directory.
func ContainerRegions(dir string) (regions []string, err error) {
	entries, err := os.ReadDir(filepath.Join(dir, portsDir))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		if e.IsDir() {
			regions = append(regions, filepath.Join(dir, e.Name()))
		}
	}
	return regions, err
}

// RemoveContainerRegion removes a region for a container and the folder of its port. Its hub ends then.
func RemoveContainerRegion(region string) error {
	socket, _ := servedPort(region)
	err := errors.Join(remove(making(region)), remove(region), remove(socket), remove(PortPath(region)))
	if err != nil {
		return fmt.Errorf("remove region: %w", err)
	}
	return nil
}
