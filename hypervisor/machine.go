package hypervisor

import (
	"context"

	"pegasus/vcpu"
)

// Machines provides the attached virtual machines of this host, as their hypervisors report them.
type Machines interface {
	// Watch calls notify with all machines at first and then after each change, until ctx ends. All calls come from one
	// goroutine.
	Watch(ctx context.Context, notify func([]Machine))
}

// Machine is a virtual machine as its hypervisor reports it.
type Machine struct {
	Domain string // its name, which is its domain's, too
	Host   string // its hypervisor: libvirt's URI, or XenHost
	State  MachineState
	// Boot changes whenever the machine starts anew: by a start, a reboot in place, or a restored snapshot of its
	// memory. 0 while it is off.
	Boot uint64
	// PID is the emulator's, VCPUs are the threads of its vCPUs by number. 0 and none while the machine is off.
	PID   int
	VCPUs []int
	// Xen is the machine's Xen domain number, where no process of the host runs it. 0 while it is off, and on other
	// hypervisors: 0 is Dom0's.
	Xen uint16
	// Memory is the number of bytes of its own memory that the machine may share with this host, where its attachment
	// sets a limit and no region is made for it; else 0.
	Memory uint64
	// Credits of the accelerator that its definition requests; 0: none.
	Credits vcpu.Credits
}

// XenHost is the Host of Xen's machines, which Xen's tools address by name.
const XenHost = "xen"

// Guests returns the machine as CPUs takes it; false where the host has no view of its CPUs, as while it is off.
func (m *Machine) Guests() (Guests, bool) {
	switch {
	case m.Xen != 0:
		return Guests{Domain: m.Domain, VM: true, Xen: m.Xen}, true
	case m.PID != 0:
		return Guests{Domain: m.Domain, Processes: []int{m.PID}, VM: true, VCPUs: m.VCPUs}, true
	}
	return Guests{}, false
}

// MachineState is a machine's run state.
type MachineState string

const (
	MachineOff     MachineState = "off"
	MachineRunning MachineState = "running"
	MachinePaused  MachineState = "paused" // its vCPUs don't run, whatever work they have
)
