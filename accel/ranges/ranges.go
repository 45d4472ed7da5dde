// Package ranges records the mappings within a range of reserved addresses, for accelerators that let guests map memory.
// It is pure: it maps nothing, and identifies memory by an opaque value.
//
// Callers: accel/soft/memory and accel/nvidia.
//
// Trust boundary: arguments come from guests and may be anything.
package ranges

import (
	"slices"

	"pegasus/accel"
)

// View is a mapping: Bytes bytes of the memory Of, from Offset on, at the address At.
type View[M any] struct {
	At, Bytes, Offset uint64
	Of                M
	Access            accel.Access
}

func (v *View[M]) end() uint64  { return v.At + v.Bytes }
func (v *View[M]) usable() bool { return v.Access != accel.NoAccess }

// Span is a range of addresses.
type Span struct{ Start, End uint64 }

// Range is a range of reserved addresses. Its views are in order and don't overlap.
type Range[M any] struct {
	Span
	views []View[M]
}

// New returns an empty range.
func New[M any](start, bytes uint64) *Range[M] { return &Range[M]{Span: Span{start, start + bytes}} }

// Empty reports whether the range has no mappings.
func (r *Range[M]) Empty() bool { return len(r.views) == 0 }

// All returns all views, in the order of their addresses.
func (r *Range[M]) All() []View[M] { return r.views }

// holds reports whether n bytes from an address on lie in the range, and n is not 0.
func (r *Range[M]) holds(at, n uint64) bool {
	return n != 0 && at >= r.Start && at < r.End && n <= r.End-at
}

// first returns the index of the first view that ends behind an address.
func (r *Range[M]) first(at uint64) int {
	i, _ := slices.BinarySearchFunc(r.views, at, func(v View[M], at uint64) int {
		if v.end() <= at {
			return -1
		}
		return 1
	})
	return i
}

// Free reports whether the addresses lie in the range and have no mapping.
func (r *Range[M]) Free(at, n uint64) bool {
	i := r.first(at)
	return r.holds(at, n) && (i == len(r.views) || r.views[i].At >= at+n)
}

// Put adds a view at free addresses.
func (r *Range[M]) Put(v View[M]) { r.views = slices.Insert(r.views, r.first(v.At), v) }

// whole returns the indices of the views that make up the addresses, and ok=false unless these are whole views without
// gaps.
func (r *Range[M]) whole(at, n uint64) (from, to int, ok bool) {
	if !r.holds(at, n) {
		return 0, 0, false
	}
	from = r.first(at)
	for to = from; n != 0 && to < len(r.views) && r.views[to].At == at && r.views[to].Bytes <= n; to++ {
		at += r.views[to].Bytes
		n -= r.views[to].Bytes
	}
	return from, to, n == 0
}

// Whole returns the views that make up the addresses, or nil unless these are whole views without gaps.
func (r *Range[M]) Whole(at, n uint64) []View[M] {
	from, to, ok := r.whole(at, n)
	if !ok {
		return nil
	}
	return r.views[from:to]
}

// Drop removes the views that make up the addresses, if these are whole views.
func (r *Range[M]) Drop(at, n uint64) {
	if from, to, ok := r.whole(at, n); ok {
		r.views = slices.Delete(r.views, from, to)
	}
}

// Allow sets the access of the views that make up the addresses, if these are whole views.
func (r *Range[M]) Allow(at, n uint64, a accel.Access) {
	for i := range r.Whole(at, n) {
		r.views[r.first(at)+i].Access = a
	}
}

// Usable returns the longest spans of adjacent usable views that overlap [at, at+n) or touch it: work may cross from one
// view of a span into the next.
func (r *Range[M]) Usable(at, n uint64) (all []Span) {
	i := r.first(at)
	for i > 0 && r.views[i-1].usable() && (i == len(r.views) || r.views[i-1].end() >= min(r.views[i].At, at)) {
		i--
	}
	for i < len(r.views) && r.views[i].At <= at+n {
		v := &r.views[i]
		i++
		if !v.usable() {
			continue
		}
		s := Span{v.At, v.end()}
		for ; i < len(r.views) && r.views[i].usable() && r.views[i].At == s.End; i++ {
			s.End = r.views[i].end()
		}
		if s.End >= at {
			all = append(all, s)
		}
	}
	return all
}
