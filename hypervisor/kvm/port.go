package kvm

import "path/filepath"

// portsDir is where the sockets of machines' ports lie, in the directory of their regions.
const portsDir = "ports"

// PortPath is the socket by which hub and agent of a region's machine wake each other.
// QEMU serves it.
func PortPath(region string) string {
	return filepath.Join(filepath.Dir(region), portsDir, filepath.Base(region))
}

// MakePorts makes the directory of ports' sockets in that of regions. libvirt, as root, makes
// the sockets for QEMU, so nobody else has to write there.
func MakePorts(regions string) error { return MakeDir(filepath.Join(regions, portsDir)) }
