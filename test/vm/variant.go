package vm

import "cmp"

// Debian's kernels, by the packages that always name the present one.
const (
	CloudKernel = cloudKernel // for tests of other packages

	cloudKernel = "linux-image-cloud-amd64" // for machines that are virtual
	fullKernel  = "linux-image-amd64"
)

// Variant is the kind of a machine. An empty field stands for the first value in its comment.
type Variant struct {
	Kernel   string // cloudKernel, fullKernel
	Machine  string // QEMU's: q35, pc
	Firmware string // bios, uefi
}

func (v Variant) kernel() string { return cmp.Or(v.Kernel, cloudKernel) }

func (v Variant) machine() string { return cmp.Or(v.Machine, "q35") }

// uefi is the firmware of Debian's package ovmf.
const uefi = "/usr/share/ovmf/OVMF.fd"

// firmware returns QEMU's arguments for the firmware.
func (v Variant) firmware() []string {
	if v.Firmware == "uefi" {
		return []string{"-bios", uefi}
	}
	return nil
}

func (v Variant) String() string {
	return v.kernel() + " on " + v.machine() + " with " + cmp.Or(v.Firmware, "bios")
}
