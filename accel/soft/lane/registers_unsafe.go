package lane

import "unsafe"

// registerFile has the registers of a group: a row of lanes for each slot, and the values that all threads share. Its
// rows have room for whole blocks of lanes. Pointers to them stay within memory, because slots do.
type registerFile struct {
	files   [placeKinds]rowFile // they point into memory and uniform
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
func (r *registerFile) init(p *program, threads int) {
	lanes := (threads + 63) &^ 63
	// A little more than a power of two, so that the same lane of many rows
	// does not fall into the same cache set. All rows begin with a cache line.
	stride, stride64 := lanes*4+64, lanes*8+64
	r.memory = make([]uint64, (p.rows32*stride+(p.rows64+2)*stride64)/8+8)
	file := unsafe.Pointer(&r.memory[0])
	file = unsafe.Add(file, -uintptr(file)&63)
	file64 := unsafe.Add(file, p.rows32*stride)
	r.result = unsafe.Add(file64, p.rows64*stride64)
	r.scratch = unsafe.Add(r.result, stride64)
	r.uniform = append(make([]uint64, 0, len(p.uniforms)+1), p.uniforms...)
	r.files = [placeKinds]rowFile{row32: {file, stride, 4}, row64: {file64, stride64, 8}, single: {unsafe.Pointer(unsafe.SliceData(r.uniform)), 8, 0}}
	r.common = newCommonRows()
	r.preds = make([]mask, p.preds)
	r.affine = make([]affine, p.affine+1)
}

// rowFile is the location of the operands of one kind: the distances from slot to slot, and from lane to lane.
type rowFile struct {
	base       unsafe.Pointer
	slot, lane int
}

// at returns the address of the operand's value for lane i, nil for operands that have none.
func (r *registerFile) at(p place, i int) unsafe.Pointer {
	f := &r.files[p.kind]
	if f.base == nil {
		return nil
	}
	return unsafe.Add(f.base, int(p.slot)*f.slot+i*f.lane)
}

// row returns the operand's row from lane 0 on, with the distance between lanes, 0 for a single value.
func (r *registerFile) row(p place) (unsafe.Pointer, int) { return r.at(p, 0), r.files[p.kind].lane }

func get32(p unsafe.Pointer, step, lane int) uint32 { return *(*uint32)(unsafe.Add(p, step*lane)) }
func get64(p unsafe.Pointer, step, lane int) uint64 { return *(*uint64)(unsafe.Add(p, step*lane)) }
func put32(p unsafe.Pointer, lane int, v uint32)    { *(*uint32)(unsafe.Add(p, 4*lane)) = v }
func put64(p unsafe.Pointer, lane int, v uint64)    { *(*uint64)(unsafe.Add(p, 8*lane)) = v }

// spread returns a row of at least n copies of a single value, valid until the next result.
func (r *registerFile) spread(from unsafe.Pointer, wide bool, n int) unsafe.Pointer {
	move := r.common.move32
	if wide {
		move = r.common.move64
	}
	move(r.result, from, nil, nil, (n+blockLanes-1)&^(blockLanes-1), 1)
	return r.result
}

// scalar reads a 32-bit operand of one lane.
func (r *registerFile) scalar(p place, lane int) uint32 {
	q, step := r.row(p)
	return get32(q, step, lane)
}

// valueOf returns a thread's value of a register.
func (r *registerFile) valueOf(p place, lane int) uint64 {
	row, step := r.row(p)
	if p.kind == row64 || p.kind == single {
		return get64(row, step, lane)
	}
	return uint64(get32(row, step, lane))
}

func (r *registerFile) setValue(p place, lane int, v uint64) {
	row, _ := r.row(p)
	if p.kind == row64 {
		put64(row, lane, v)
	} else {
		put32(row, lane, uint32(v))
	}
}

// predicateOf returns the value of a predicate operand; nowhere is true.
func (r *registerFile) predicateOf(p place, not bool) mask {
	m := mask{^uint64(0), ^uint64(0), ^uint64(0), ^uint64(0)}
	if p.kind == predicate {
		m = r.preds[p.slot]
	}
	if not {
		for i := range m {
			m[i] = ^m[i]
		}
	}
	return m
}

// known returns the progression of an operand that its numbers represent, or nil.
func (r *registerFile) known(p place) *affine {
	if p.affine == 0 {
		return nil
	}
	if a := &r.affine[p.affine]; a.form != inRow {
		return a
	}
	return nil
}

// progression returns an operand as an affine one, if it is: a single value, or a register with a recorded progression.
func (r *registerFile) progression(p place) (a affine, ok bool) {
	switch {
	case p.kind == single:
		return affine{first: r.uniform[p.slot]}, true
	case p.kind == nowhere:
		return a, true
	case p.affine == 0:
		return a, false
	}
	a = r.affine[p.affine]
	return a, a.form != inRow
}
