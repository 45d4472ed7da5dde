package exec

import (
	"unsafe"

	"pegasus/accel/soft/lane/arith"
	"pegasus/accel/soft/lane/ir"
)

// registerFile has the registers of a group: a row of lanes for each slot, and the values that all threads share. Its
// rows have room for whole blocks of lanes. Pointers to them stay within memory, because slots do.
type registerFile struct {
	files   [ir.NumKinds]rowFile // they point into memory and uniform
	memory  []uint64
	uniform []uint64
	preds   []mask
	affine  []affine       // of affine registers, by number
	result  unsafe.Pointer // a row for results of which not all count
	scratch unsafe.Pointer // a row for addresses
	common  commonRows
	value   uint64    // to spread over a row
	outcome mask      // of a comparison
	values  [4]uint64 // of a single operation
}

// init makes the registers for a program and a number of threads.
func (r *registerFile) init(p *Program, threads int) {
	lanes := (threads + 63) &^ 63
	if p.compiled { // machine code has the distances of rows
		lanes = ir.MaxLanes
	}
	// A little more than a power of two, so that the same lane of many rows
	// does not fall into the same cache set. All rows begin with a cache line.
	stride, stride64 := lanes*4+64, lanes*8+64
	r.memory = make([]uint64, (p.Rows32*stride+(p.Rows64+2)*stride64)/8+8)
	file := unsafe.Pointer(&r.memory[0])
	file = unsafe.Add(file, -uintptr(file)&63)
	file64 := unsafe.Add(file, p.Rows32*stride)
	r.result = unsafe.Add(file64, p.Rows64*stride64)
	r.scratch = unsafe.Add(r.result, stride64)
	r.uniform = append(make([]uint64, 0, len(p.Uniforms)+1), p.Uniforms...)
	r.files = [ir.NumKinds]rowFile{ir.Row32: {file, stride, 4}, ir.Row64: {file64, stride64, 8}, ir.Single: {unsafe.Pointer(unsafe.SliceData(r.uniform)), 8, 0}}
	r.common = newCommonRows()
	r.preds = make([]mask, p.Predicates)
	r.affine = make([]affine, p.AffineSlots+1)
}

// rowFile is the location of the operands of one kind: the distances from slot to slot, and from lane to lane.
type rowFile struct {
	base       unsafe.Pointer
	slot, lane int
}

// at returns the address of the operand's value for lane i, nil for operands that have none.
func (r *registerFile) at(p ir.Place, i int) unsafe.Pointer {
	f := &r.files[p.Kind]
	if f.base == nil {
		return nil
	}
	return unsafe.Add(f.base, int(p.Slot)*f.slot+i*f.lane)
}

// row returns the operand's row from lane 0 on, with the distance between lanes, 0 for a single value.
func (r *registerFile) row(p ir.Place) (unsafe.Pointer, int) { return r.at(p, 0), r.files[p.Kind].lane }

// spread returns a row of at least n copies of a single value, valid until the next result.
func (r *registerFile) spread(from unsafe.Pointer, wide bool, n int) unsafe.Pointer {
	move := r.common.move32
	if wide {
		move = r.common.move64
	}
	move(r.result, from, nil, nil, (n+arith.BlockLanes-1)&^(arith.BlockLanes-1), 1)
	return r.result
}

// scalar reads a 32-bit operand of one lane.
func (r *registerFile) scalar(p ir.Place, lane int) uint32 {
	q, step := r.row(p)
	return arith.Get32(q, step, lane)
}

// valueOf returns a thread's value of a register.
func (r *registerFile) valueOf(p ir.Place, lane int) uint64 {
	row, step := r.row(p)
	if p.Kind == ir.Row64 || p.Kind == ir.Single {
		return arith.Get64(row, step, lane)
	}
	return uint64(arith.Get32(row, step, lane))
}

func (r *registerFile) setValue(p ir.Place, lane int, v uint64) {
	row, _ := r.row(p)
	if p.Kind == ir.Row64 {
		arith.Put64(row, lane, v)
	} else {
		arith.Put32(row, lane, uint32(v))
	}
}

// predicateOf returns the value of a predicate operand; nowhere is true.
func (r *registerFile) predicateOf(p ir.Place, not bool) mask {
	m := mask{^uint64(0), ^uint64(0), ^uint64(0), ^uint64(0)}
	if p.Kind == ir.Predicate {
		m = r.preds[p.Slot]
	}
	if not {
		for i := range m {
			m[i] = ^m[i]
		}
	}
	return m
}

// recorded returns the progression of an operand if its numbers represent it, or nil.
func (r *registerFile) recorded(p ir.Place) *affine {
	if p.Affine == 0 {
		return nil
	}
	if a := &r.affine[p.Affine]; a.form != inRow {
		return a
	}
	return nil
}

// progression returns an operand as an affine one, if it is: a single value, or a register with a recorded progression.
func (r *registerFile) progression(p ir.Place) (a affine, ok bool) {
	switch {
	case p.Kind == ir.Single:
		return affine{first: r.uniform[p.Slot]}, true
	case p.Kind == ir.Nowhere:
		return a, true
	case p.Affine == 0:
		return a, false
	}
	a = r.affine[p.Affine]
	return a, a.form != inRow
}
