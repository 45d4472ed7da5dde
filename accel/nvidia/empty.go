//go:build cgo

package nvidia

import (
	"fmt"

	"pegasus/accel/nvidia/driver"
	"pegasus/accel/nvidia/listing"
	"pegasus/cuda"
)

// emptyModule has a kernel that does nothing.
const emptyModule = ".version 6.0\n.target sm_50\n.address_size 64\n.visible .entry empty()\n{\n\tret;\n}\n\x00"

// Empty is a context with an empty kernel. The end of the process frees it.
type Empty struct {
	ctx    driver.Context
	launch driver.Launch
}

// NewEmpty creates an Empty on a device.
func NewEmpty(library, which string) (*Empty, error) {
	all, err := List(library)
	if err != nil {
		return nil, err
	}
	d, err := listing.Choose(all, which)
	if err != nil {
		return nil, err
	}
	c, r := driver.NewContext(d.Index, schedBlockingSync)
	if r != cuda.Success {
		return nil, fmt.Errorf("NVIDIA device %d: make a context: %w", d.Index, r)
	}
	m, log, r := driver.LoadModule(c, []byte(emptyModule))
	if r != cuda.Success {
		return nil, fmt.Errorf("NVIDIA device %d: load a module: %w: %s", d.Index, r, log)
	}
	f, r := driver.FunctionOf(c, m, "empty")
	if r != cuda.Success {
		return nil, fmt.Errorf("NVIDIA device %d: find a kernel: %w", d.Index, r)
	}
	return &Empty{c, driver.Launch{Function: f, Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{1, 1, 1}}}, nil
}

// Run runs the kernel and waits until it has ended: the additional time right after another process's kernel is the
// cost of a context switch.
func (e *Empty) Run() error {
	if r := e.launch.Run(e.ctx, nil); r != cuda.Success {
		return r
	}
	if r := driver.SyncStream(e.ctx, nil); r != cuda.Success {
		return r
	}
	return nil
}

// Unused returns the unused bytes of the device's memory: its decrease by another context is the size of a context.
func (e *Empty) Unused() (uint64, error) {
	n, r := driver.Unused(e.ctx)
	if r != cuda.Success {
		return 0, r
	}
	return n, nil
}
