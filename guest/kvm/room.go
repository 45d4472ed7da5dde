package kvm

import (
	"fmt"
	"slices"

	"pegasus/callbuf"
	"pegasus/callbuf/region"
)

// room is the allocator of a region without a file system.
type room struct {
	bytes uint64
	parts []part // sorted by offset, disjoint
}

type part struct {
	callbuf.Extent
	name string
}

// take allocates the first free part that is large enough.
func (r *room) take(name string, bytes uint64) (callbuf.Extent, error) {
	at := uint64(0)
	for i, p := range append(slices.Clone(r.parts), part{Extent: callbuf.Extent{Offset: r.bytes}}) {
		if p.Offset-at >= bytes {
			e := callbuf.Extent{Offset: at, Bytes: bytes}
			r.parts = slices.Insert(r.parts, i, part{e, name})
			return e, nil
		}
		at = p.Offset + p.Bytes
	}
	return callbuf.Extent{}, fmt.Errorf("%d bytes of the region: there is no piece of that size left", bytes)
}

// keep marks a recorded part as allocated.
func (r *room) keep(name string, e callbuf.Extent) error {
	i := slices.IndexFunc(r.parts, func(p part) bool { return p.Offset >= e.Offset })
	if i < 0 {
		i = len(r.parts)
	}
	switch {
	case e.Bytes == 0 || e.Offset%region.PageBytes != 0 || e.Offset > r.bytes || e.Bytes > r.bytes-e.Offset:
		return fmt.Errorf("%d bytes at %d: not in the region", e.Bytes, e.Offset)
	case i > 0 && r.parts[i-1].Offset+r.parts[i-1].Bytes > e.Offset, i < len(r.parts) && e.Offset+e.Bytes > r.parts[i].Offset:
		return fmt.Errorf("%d bytes at %d: they are another's", e.Bytes, e.Offset)
	}
	r.parts = slices.Insert(r.parts, i, part{e, name})
	return nil
}

// give frees a part.
func (r *room) give(name string) {
	r.parts = slices.DeleteFunc(r.parts, func(p part) bool { return p.name == name })
}
