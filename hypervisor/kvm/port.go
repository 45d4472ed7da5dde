package kvm

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"path/filepath"
)

// portsDir is the directory of the sockets of machines' ports, in that of their regions. A region has the name of its
// machine, which is a domain's and so doesn't begin with a dot; files of ours beside regions do.
const portsDir = ".ports"

// maxSocketPath is the kernel's limit on a socket's path, in bytes.
const maxSocketPath = 107

// oldPortsDir has the ports of machines that an earlier release attached, until they are attached again.
const oldPortsDir = "ports"

// PortPath returns the path of the socket by which hub and agent of a region's machine wake each other. QEMU serves
// it.
func PortPath(region string) string {
	return filepath.Join(filepath.Dir(region), portsDir, filepath.Base(region))
}

func oldPortPath(region string) string {
	return filepath.Join(filepath.Dir(region), oldPortsDir, filepath.Base(region))
}

// dialPort connects to the port of a region's machine.
func dialPort(region string) (*net.UnixConn, error) {
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: PortPath(region), Net: "unix"})
	if errors.Is(err, fs.ErrNotExist) {
		if old, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: oldPortPath(region), Net: "unix"}); err == nil {
			return old, nil
		}
	}
	return c, err
}

// MakeOldPorts creates the directory of the machine's port, if an earlier release attached it.
func (d *Definition) MakeOldPorts(regions string) error {
	old := filepath.Join(regions, oldPortsDir)
	for i := range d.all {
		if v := &d.all[i]; v.tag == "channel" && d.ours(v) && filepath.Dir(v.path) == old {
			if err := MakeDir(old); err != nil {
				return fmt.Errorf("its port, as an earlier release made it: %w; attach the machine again", err)
			}
		}
	}
	return nil
}

// MakePorts creates the directory of ports' sockets in that of regions. libvirt creates the sockets for QEMU as root,
// so no other user needs to write there.
func MakePorts(regions string) error { return MakeDir(filepath.Join(regions, portsDir)) }
