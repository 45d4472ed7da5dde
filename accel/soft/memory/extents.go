package memory

import "math/bits"

// extents divides an address range into used and free extents. It is a two-level segregated-fit allocator: a free
// extent hangs in the bin of its size (power of two, and eight steps between two powers), two levels of bitmaps find a
// bin that fits, and neighbours merge at once. Its bookkeeping lies beside the memory, never in it: the memory belongs
// to guests.
type extents struct {
	granule uint64
	used    map[uint64]*extent
	bins    [maxClass][steps]*extent
	classes uint64           // bit c: some bin of class c is not empty
	filled  [maxClass]uint32 // bit s: bin [c][s] is not empty
	spare   *extent
}

const (
	steps    = 8
	stepBits = 3
	maxClass = 48
)

type extent struct {
	start, size    uint64
	below, above   *extent // neighbours by address
	previous, next *extent // in the bin, if free
	bytes          uint64  // of the allocation, at most size
	free           bool
	visible        bool // can be found by address
}

func newExtents(start, size, granule uint64) *extents {
	e := &extents{granule: granule, used: map[uint64]*extent{}}
	e.push(&extent{start: start, size: size})
	return e
}

// bin returns the bin of an extent of n granules.
func bin(n uint64) (class, step int) {
	if n < steps {
		return 0, int(n)
	}
	class = bits.Len64(n) - stepBits
	return class, int(n>>(class-1)) & (steps - 1)
}

// alloc returns an extent of size bytes, a multiple of the granule.
func (e *extents) alloc(size uint64) *extent {
	n := size / e.granule
	x := e.find(n)
	if x == nil {
		return nil
	}
	e.remove(x)
	return e.use(x, size)
}

// use takes the first size bytes of an extent that is in no bin any more.
func (e *extents) use(x *extent, size uint64) *extent {
	if x.size > size {
		rest := e.newExtent()
		*rest = extent{start: x.start + size, size: x.size - size, below: x, above: x.above}
		if x.above != nil {
			x.above.below = rest
		}
		x.above, x.size = rest, size
		e.push(rest)
	}
	e.used[x.start] = x
	return x
}

// allocAt takes size bytes at an address, if they are free: it searches all free extents.
func (e *extents) allocAt(start, size uint64) *extent {
	for c := range e.bins {
		for s := range e.bins[c] {
			for x := e.bins[c][s]; x != nil; x = x.next {
				if start >= x.start && start-x.start < x.size && size <= x.size-(start-x.start) {
					return e.cut(x, start, size)
				}
			}
		}
	}
	return nil
}

// cut takes size bytes from start on out of a free extent.
func (e *extents) cut(x *extent, start, size uint64) *extent {
	e.remove(x)
	if low := start - x.start; low > 0 {
		rest := e.newExtent()
		*rest = extent{start: x.start, size: low, below: x.below, above: x}
		if x.below != nil {
			x.below.above = rest
		}
		x.below, x.start, x.size = rest, start, x.size-low
		e.push(rest)
	}
	return e.use(x, size)
}

// find returns a free extent of at least n granules: from the smallest bin in which everything fits, else a large
// enough one from n's own bin.
func (e *extents) find(n uint64) *extent {
	up := n
	if n >= steps {
		up = n + 1<<(bits.Len64(n)-stepBits-1) - 1
	}
	c, s := bin(up)
	if c < maxClass {
		if m := e.filled[c] >> s << s; m != 0 {
			return e.bins[c][bits.TrailingZeros32(m)]
		}
		if m := e.classes >> (c + 1) << (c + 1); m != 0 {
			c = bits.TrailingZeros64(m)
			return e.bins[c][bits.TrailingZeros32(e.filled[c])]
		}
	}
	c, s = bin(n)
	for x := e.bins[c][s]; x != nil; x = x.next {
		if x.size >= n*e.granule {
			return x
		}
	}
	return nil
}

// release frees a used extent.
func (e *extents) release(x *extent) {
	delete(e.used, x.start)
	if a := x.above; a != nil && a.free {
		e.remove(a)
		e.merge(x, a)
	}
	if b := x.below; b != nil && b.free {
		e.remove(b)
		e.merge(b, x)
		x = b
	}
	e.push(x)
}

// merge adds high to low, its neighbour.
func (e *extents) merge(low, high *extent) {
	low.size += high.size
	low.above = high.above
	if high.above != nil {
		high.above.below = low
	}
	*high = extent{next: e.spare}
	e.spare = high
}

func (e *extents) newExtent() *extent {
	x := e.spare
	if x == nil {
		return new(extent)
	}
	e.spare = x.next
	return x
}

func (e *extents) push(x *extent) {
	c, s := bin(x.size / e.granule)
	x.free, x.previous, x.next = true, nil, e.bins[c][s]
	if x.next != nil {
		x.next.previous = x
	}
	e.bins[c][s] = x
	e.filled[c] |= 1 << s
	e.classes |= 1 << c
}

func (e *extents) remove(x *extent) {
	c, s := bin(x.size / e.granule)
	if x.previous != nil {
		x.previous.next = x.next
	} else {
		e.bins[c][s] = x.next
	}
	if x.next != nil {
		x.next.previous = x.previous
	}
	if e.bins[c][s] == nil {
		if e.filled[c] &^= 1 << s; e.filled[c] == 0 {
			e.classes &^= 1 << c
		}
	}
	x.free, x.previous, x.next = false, nil, nil
}
