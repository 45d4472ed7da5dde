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

// Empty makes a context on a device, and returns what runs an empty kernel there and waits until it has ended: what that
// takes longer right after another process' kernel is what changing contexts costs. The context goes with the process.
func Empty(library, which string) (run func() error, err error) {
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
	l := driver.Launch{Function: f, Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{1, 1, 1}}
	return func() error {
		if r := l.Run(c, nil); r != cuda.Success {
			return r
		}
		if r := driver.SyncStream(c, nil); r != cuda.Success {
			return r
		}
		return nil
	}, nil
}
