package soft

import (
	"hash/maphash"

	"pegasus/accel"
)

var historySeed = maphash.MakeSeed()

// shape is what launches that take about the same time have in common.
type shape struct {
	function    *function
	grid, block [3]uint32
	shared      uint32
}

func (s shape) key() uint64 { return maphash.Comparable(historySeed, s) }

func (l *launch) shape() shape { return shape{l.function, l.grid, l.block, l.shared} }

// Predict says how long a launch will hold the compute engine (ns), 0 if one like it was not seen of late.
func (d *Device) Predict(w accel.Work) int64 {
	var l *accel.Launch
	switch w := w.(type) {
	case *accel.Launch:
		l = w
	case accel.Launch:
		l = &w
	default:
		return 0
	}
	m, ok := l.Module.(*Module)
	if !ok || l.Function < 0 || l.Function >= len(m.functions) {
		return 0
	}
	return d.history.Find(shape{&m.functions[l.Function], l.Grid, l.Block, l.SharedBytes}.key())
}
