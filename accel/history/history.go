// Package history keeps a running mean of the duration of work for each key. Accelerators predict launches by it.
//
// Any goroutine may use a Table. It has neither locks nor chains: a key that hashes to the slot of another key replaces
// that one.
//
// Callers: accel/soft and accel/nvidia.
//
// Trust boundary: none; keys are hashes of the guest's requests, and wrong durations only harm predictions.
package history

import "sync/atomic"

// Table holds the means of up to 1024 keys. The zero value is empty and ready to use.
type Table struct {
	places [1024]struct {
		key atomic.Uint64
		ns  atomic.Int64
	}
}

// Learn moves a key's mean a quarter of the way to ns, in nanoseconds. A new key's mean is ns.
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

// Find returns the mean of a key in nanoseconds, or 0 if the table does not hold the key.
func (t *Table) Find(key uint64) int64 {
	p := &t.places[key%uint64(len(t.places))]
	if p.key.Load() != key {
		return 0
	}
	return p.ns.Load()
}
