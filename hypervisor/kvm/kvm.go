// Package kvm is the host's side of a virtual machine under QEMU: the memory that its hub
// (hypervisor/hub) lends to the workers of its processes, and how its definition of libvirt is
// given what that takes.
//
// A machine has a region, a file in shared memory that is its NVDIMM. Inside, an agent
// (guest/kvm) puts a file system on it and gives each process a file, which is the
// process's segment. The daemon's Keeper starts a hub where there is a region; regions are made
// by whoever starts the machine.
//
// Whom it trusts: the daemon. The machine may write anything anywhere at any time.
package kvm
