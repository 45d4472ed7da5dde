package switches

import "unsafe"

// slotLayout is a slot; a test holds it to the offsets that the programs use.
type slotLayout struct {
	sequence, state           uint32
	key                       uint64
	since, ran, waited, times uint64
	cpu                       uint32
	_                         [12]byte
}

// key is a place of the index. The mapping is page aligned, and at is checked by
// slicing.
func (t *Table) key(at int) *uint64 {
	return (*uint64)(unsafe.Pointer(&t.mem[at<<keyShift : at<<keyShift+keyBytes][0]))
}

// slot is what the kernel writes of the thread in a place of the index. The same
// makes it right.
func (t *Table) slot(at int) *slotLayout {
	from := indexBytes + at<<slotShift
	return (*slotLayout)(unsafe.Pointer(&t.mem[from : from+slotBytes][0]))
}
