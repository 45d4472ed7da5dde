package main

import (
	"pegasus/hypervisor/linux"
	"pegasus/hypervisor/raised"
	"pegasus/hypervisor/xen/cpus"
)

// raisedDir is where in a runtime directory is written down what was set of the CPU
// weights that a daemon changes.
const raisedDir = "raised"

// putBack puts back a weight that a daemon which has died changed.
func putBack(r raised.Record) (bool, error) {
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
