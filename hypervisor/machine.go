package hypervisor

import (
	"context"

	"pegasus/vcpu"
)

// Machines knows the virtual machines of this host that were attached, as their
// hypervisors have them.
type Machines interface {
	// Watch tells of all of them at once, at first and then whenever something of them
	// has changed, until ctx ends. tell is called by one goroutine.
	Watch(ctx context.Context, tell func([]Machine))
}

// Machine is a virtual machine as its hypervisor has it.
type Machine struct {
	Domain string // its name, which is its domain's, too
	Host   string // who has it: libvirt's URI, or XenHost
	State  MachineState
	// Boot changes whenever the machine begins anew: by a start, a reboot in place, or
	// because its memory was put back to what it once was. 0 while it is off.
	Boot uint64
	// PID is its emulator's, VCPUs the threads of its vCPUs by number. 0 and none
	// while it is off.
	PID   int
	VCPUs []int
	// Xen is the number that Xen gave it, where no process of the host runs it. 0 while it
	// is off, and elsewhere: this is Dom0's.
	Xen uint16
	// Memory is how many bytes of its own it may share with this host, where that is said of it and
	// not made for it; else 0.
	Memory uint64
	// Credits of the accelerator that its definition asks for; 0: it asks for none.
	Credits vcpu.Credits
}

// XenHost is the Host of Xen's machines, which are known by name to its tools.
const XenHost = "xen"

// Guests is what the host can see of the machine's CPUs; false where that is nothing, as
// while it is off.
func (m *Machine) Guests() (Guests, bool) {
	switch {
	case m.Xen != 0:
		return Guests{Domain: m.Domain, VM: true, Xen: m.Xen}, true
	case m.PID != 0:
		return Guests{Domain: m.Domain, Processes: []int{m.PID}, VM: true, VCPUs: m.VCPUs}, true
	}
	return Guests{}, false
}

// MachineState is whether a machine runs.
type MachineState string

const (
	MachineOff     MachineState = "off"
	MachineRunning MachineState = "running"
	MachinePaused  MachineState = "paused" // its vCPUs don't run, whatever they have to do
)
