package main

import (
	"pegasus/hypervisor/linux"
	"pegasus/hypervisor/weightjournal"
	"pegasus/hypervisor/xen/cpus"
)

// raisedDir is the subdirectory of a runtime directory for the configured values of the CPU weights that a
// daemon changes.
const raisedDir = "raised"

// putBack restores a weight that a dead daemon changed.
func putBack(r weightjournal.Record) (bool, error) {
	if r.Xen == 0 {
		return linux.PutBack(r)
	}
	x, calls, err := openHypervisor()
	if err != nil {
		return false, err
	}
	defer calls.Close()
	return cpus.PutBack(x, r)
}
