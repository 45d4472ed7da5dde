//go:build cgo

package nvidia

import (
	"slices"

	"pegasus/accel"
)

// interval is [from, to).
type interval struct{ from, to int64 }

// charged contains when engines of a class were held: times that overlap, because streams run concurrently, count once.
// The intervals are disjoint and in order.
type charged struct{ known []interval }

// maxCharged bounds the intervals. Beyond it, the time between the two oldest counts as held: an operation reported so
// much later is charged too little, never too much.
const maxCharged = 64

// add records a time, and returns an interval as long as the part of it that was not recorded before.
func (c *charged) add(from, to int64) (int64, int64) {
	if to <= from {
		return from, from
	}
	first := slices.IndexFunc(c.known, func(k interval) bool { return k.to >= from })
	if first < 0 {
		first = len(c.known)
	}
	merged, fresh, begin := interval{from, to}, to-from, from
	last := first
	for ; last < len(c.known) && c.known[last].from <= to; last++ {
		k := c.known[last]
		fresh -= max(min(k.to, to)-max(k.from, from), 0)
		if k.from <= begin {
			begin = max(begin, k.to)
		}
		merged.from, merged.to = min(merged.from, k.from), max(merged.to, k.to)
	}
	c.known = slices.Replace(c.known, first, last, merged)
	if len(c.known) > maxCharged {
		c.known = slices.Replace(c.known, 0, 2, interval{c.known[0].from, c.known[1].to})
	}
	begin = min(begin, to-fresh)
	return begin, begin + fresh
}

// charge records that an engine was held, and returns the time to charge for that.
func (d *Device) charge(c accel.Class, from, to int64) (int64, int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.charged[c].add(from, to)
}
