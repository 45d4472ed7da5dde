// Package kvm is the host's side of a virtual machine under QEMU: the memory that its hub (hypervisor/hub) lends to
// the workers of its processes, and the changes of its libvirt definition for that.
//
// A machine has a region, a file in shared memory that is its NVDIMM. Inside, an agent (guest/kvm) puts a file system
// on it and gives each process a file, which is the process's segment. The daemon's Keeper starts a hub where there
// is a region; the program that starts the machine, such as libvirt's hook, creates the region.
//
// Callers: the daemon as Keeper, `pegasusd hub`, `pegasus` and pegasus-libvirt.
//
// Trust boundary: the daemon is trusted. The machine may write anything anywhere at any time.
package kvm
