package soft

import (
	"sync/atomic"

	"pegasus/accel"
	"pegasus/accel/internal/frame"
)

// functionNumber counts functions that were loaded.
var functionNumber atomic.Uint64

// shape has the properties by which launches of about the same time are grouped.
type shape struct {
	function    *function
	grid, block [3]uint32
	shared      uint32
}

// key returns the same value for equal shapes. Each launch computes three, so it takes a few multiplications only.
func (s shape) key() uint64 {
	k := s.function.number
	for _, w := range [...]uint64{
		uint64(s.grid[0])<<32 | uint64(s.grid[1]), uint64(s.grid[2])<<32 | uint64(s.block[0]),
		uint64(s.block[1])<<32 | uint64(s.block[2]), uint64(s.shared),
	} {
		k = (k ^ w) * 0x9e3779b97f4a7c15
		k ^= k >> 32
	}
	return k
}

func (l *launch) shape() shape { return shape{l.function, l.grid, l.block, l.shared} }

// Predict returns for how long a launch will hold the compute engine (ns), 0 if no launch like it was seen recently.
func (d *Device) Predict(w accel.Work) int64 {
	l := frame.LaunchOf(w)
	if l == nil {
		return 0
	}
	m, ok := l.Module.(*Module)
	if !ok || l.Function < 0 || l.Function >= len(m.functions) {
		return 0
	}
	return d.history.Find(shape{&m.functions[l.Function], l.Grid, l.Block, l.SharedBytes}.key())
}
