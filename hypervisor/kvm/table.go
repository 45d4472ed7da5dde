package kvm

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"pegasus/callbuf"
)

// table records the lent parts of a region. The guest chooses the place of its segments; that no byte is in two of
// them isolates its processes' workers.
type table struct {
	limit uint64 // end of the memory that can be lent
	lent  []loan // by offset, none overlaps another
}

type loan struct {
	callbuf.Extent
	to uint32
}

var errOverlap = errors.New("it overlaps another")

// add lends extents that Extents.Check has accepted, all of them or none.
func (t *table) add(to uint32, parts callbuf.Extents) error {
	for i, p := range parts {
		if err := t.addOne(to, p); err != nil {
			for _, q := range parts[:i] {
				t.remove(func(l loan) bool { return l.to == to && l.Extent == q })
			}
			return fmt.Errorf("extent of %d bytes at %d: %w", p.Bytes, p.Offset, err)
		}
	}
	return nil
}

func (t *table) addOne(to uint32, p callbuf.Extent) error {
	if p.Offset > t.limit || p.Bytes > t.limit-p.Offset {
		return fmt.Errorf("beyond the region's %d", t.limit)
	}
	i, _ := slices.BinarySearchFunc(t.lent, p.Offset, func(l loan, at uint64) int { return cmp.Compare(l.Offset, at) })
	if i > 0 && t.lent[i-1].Offset+t.lent[i-1].Bytes > p.Offset {
		return errOverlap
	}
	if i < len(t.lent) && p.Offset+p.Bytes > t.lent[i].Offset {
		return errOverlap
	}
	t.lent = slices.Insert(t.lent, i, loan{p, to})
	return nil
}

// takeBack ends the loans to a process.
func (t *table) takeBack(to uint32) { t.remove(func(l loan) bool { return l.to == to }) }

func (t *table) remove(which func(loan) bool) { t.lent = slices.DeleteFunc(t.lent, which) }
