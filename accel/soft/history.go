package soft

import (
	"hash/maphash"
	"sync/atomic"

	"pegasus/accel"
)

// history remembers how long launches took: a running mean for each kernel and
// launch shape. It is a table without chains: who hits a used place takes it over.
type history struct {
	places [1024]struct {
		key atomic.Uint64
		ns  atomic.Int64
	}
}

var historySeed = maphash.MakeSeed()

type shape struct {
	function    *function
	grid, block [3]uint32
	shared      uint32
}

// learn moves the mean a quarter of the way.
func (h *history) learn(l *launch, ns int64) {
	key := maphash.Comparable(historySeed, shape{l.function, l.grid, l.block, l.shared})
	p := &h.places[key%uint64(len(h.places))]
	if p.key.Load() != key {
		p.ns.Store(0)
		p.key.Store(key)
	}
	if old := p.ns.Load(); old != 0 {
		ns = old + (ns-old)/4
	}
	p.ns.Store(max(ns, 1))
}

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
	return d.history.find(shape{&m.functions[l.Function], l.Grid, l.Block, l.SharedBytes})
}

func (h *history) predict(l *launch) int64 {
	return h.find(shape{l.function, l.grid, l.block, l.shared})
}

// find is the mean for a shape, 0 if it was not seen of late.
func (h *history) find(s shape) int64 {
	key := maphash.Comparable(historySeed, s)
	p := &h.places[key%uint64(len(h.places))]
	if p.key.Load() != key {
		return 0
	}
	return p.ns.Load()
}
