// Package history remembers how long work of a kind took: a running mean for
// each key. Accelerators predict launches by it.
//
// Any goroutine may use a Table: it is a table without locks or chains, and who
// hits a used place takes it over.
package history

import "sync/atomic"

// Table is empty when it is zero.
type Table struct {
	places [1024]struct {
		key atomic.Uint64
		ns  atomic.Int64
	}
}

// Learn moves a key's mean a quarter of the way to ns.
func (t *Table) Learn(key uint64, ns int64) {
	p := &t.places[key%uint64(len(t.places))]
	if p.key.Load() != key {
		p.ns.Store(0)
		p.key.Store(key)
	}
	if old := p.ns.Load(); old != 0 {
		ns = old + (ns-old)/4
	}
	p.ns.Store(max(ns, 1))
}

// Find is the mean of a key, 0 if it was not seen of late.
func (t *Table) Find(key uint64) int64 {
	p := &t.places[key%uint64(len(t.places))]
	if p.key.Load() != key {
		return 0
	}
	return p.ns.Load()
}
