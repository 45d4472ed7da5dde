package main

import (
	"log/slog"

	"pegasus/hypervisor"
	"pegasus/hypervisor/linux"
	"pegasus/hypervisor/linux/switches"
	"pegasus/hypervisor/raised"
	"pegasus/hypervisor/xen/control"
	"pegasus/hypervisor/xen/cpus"
	"pegasus/hypervisor/xen/domus"
	"pegasus/hypervisor/xen/privcmd"
)

// raisedDir is where in a runtime directory is written down what was set of the CPU
// weights that a daemon changes.
const raisedDir = "raised"

// cpuSide is the CPU side of a host's domains, and what changes the weights of machines, which
// it writes down in a directory. In Dom0 of Xen, machines are Xen's.
func cpuSide(private bool, weights string, log *slog.Logger) (hypervisor.CPUs, hypervisor.Raiser) {
	processes := linux.NewCPUs(log, switches.Load)
	if private || !domus.IsDom0(domus.CapabilitiesPath) {
		return processes, processes.Raiser(weights)
	}
	x, _, err := openHypervisor()
	if err != nil {
		log.Warn("what Xen's CPUs do can't be seen, so policies know of Dom0's own processes alone", "err", err)
		return processes, processes.Raiser(weights)
	}
	xen := cpus.NewCPUs(x, log)
	return cpus.NewBeside(xen, processes), xen.Raiser(weights)
}

// openHypervisor finds out how to talk to Xen, for one goroutine at a time.
func openHypervisor() (*control.Xen, *privcmd.Hypercalls, error) {
	calls, err := privcmd.Open()
	if err != nil {
		return nil, nil, err
	}
	x, err := control.New(calls)
	if err != nil {
		calls.Close()
		return nil, nil, err
	}
	return x, calls, nil
}

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
