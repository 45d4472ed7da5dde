package main

import (
	"pegasus/hypervisor/linux"
	"pegasus/hypervisor/raised"
)

// raisedDir is where in a runtime directory is written down what was set of the CPU
// weights that a daemon changes.
const raisedDir = "raised"

// putBack puts back a weight that a daemon which has died changed.
func putBack(r raised.Record) (bool, error) { return linux.PutBack(r) }
