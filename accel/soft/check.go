package soft

import (
	"sync/atomic"

	"pegasus/accel"
)

// checks are checks of kernels that no device performs.
type checks struct {
	seed     atomic.Uint64 // of the order of warps; 0: the usual order
	launches atomic.Uint64 // in a random order
}

// Check enables checks, for later allocations and launches.
func (d *Device) Check(c accel.Checks) {
	if c.Bounds {
		d.space.Strict()
	}
	if c.Order {
		d.checks.seed.Store(max(c.Seed, 1))
	}
}

// random returns the source of the order of the warps of a launch: the launches of a program that makes them one after
// the other have the same orders with the same seed.
func (c *checks) random() uint64 {
	seed := c.seed.Load()
	if seed == 0 {
		return 0
	}
	const odd = 0x9e3779b97f4a7c15
	return max((seed+c.launches.Add(1)*odd)*odd, 1)
}
