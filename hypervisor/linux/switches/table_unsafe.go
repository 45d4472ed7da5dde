package switches

import "unsafe"

// slotLayout is a slot; a test compares it with the offsets that the programs use.
type slotLayout struct {
	sequence, state           uint32
	key                       uint64
	since, ran, waited, times uint64
	cpu                       uint32
	_                         [12]byte
}

// key returns the key at a place of the index. The mapping is page aligned, and slicing checks at.
func (t *Table) key(at int) *uint64 {
	return (*uint64)(unsafe.Pointer(&t.mem[at<<keyShift : at<<keyShift+keyBytes][0]))
}

// slot returns the slot of a place of the index. It is aligned and checked in the same way.
func (t *Table) slot(at int) *slotLayout {
	from := indexBytes + at<<slotShift
	return (*slotLayout)(unsafe.Pointer(&t.mem[from : from+slotBytes][0]))
}
