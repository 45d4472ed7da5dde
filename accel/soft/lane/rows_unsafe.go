package lane

import "unsafe"

//go:generate go run ./internal/genrows

// rowFunc computes n lanes of d from a, b and c. Which operands are rows and
// which are single values is fixed for each function; the lowering chooses.
// Pointers stay within the group's register file, because slots do.
type rowFunc func(d, a, b, c unsafe.Pointer, n int)

// rowOp is an operation's row kernels, by the set of scalar operands, and
// which operands have 64 bits.
type rowOp struct {
	rows [8]rowFunc
	wide uint8
}

// place is where an operand lives.
type place struct {
	slot int32
	kind placeKind
}

type placeKind uint8

const (
	nowhere placeKind = iota
	row32
	row64
	single // in the group's uniform values
	predicate
)

// at is the address of the operand's value for lane i.
func (g *group) at(p place, i int) unsafe.Pointer {
	switch p.kind {
	case row32:
		return unsafe.Add(g.file, int(p.slot)*g.stride+i*4)
	case row64:
		return unsafe.Add(g.file64, int(p.slot)*g.stride64+i*8)
	case single:
		return unsafe.Pointer(&g.uniform[p.slot])
	}
	return nil
}

// row is the operand's row from lane 0 on, with the distance between lanes, 0 for a single value.
func (g *group) row(p place) (unsafe.Pointer, int) {
	switch p.kind {
	case row32:
		return g.at(p, 0), 4
	case row64:
		return g.at(p, 0), 8
	}
	return g.at(p, 0), 0
}

func get32(p unsafe.Pointer, step, lane int) uint32 { return *(*uint32)(unsafe.Add(p, step*lane)) }
func get64(p unsafe.Pointer, step, lane int) uint64 { return *(*uint64)(unsafe.Add(p, step*lane)) }
func put32(p unsafe.Pointer, lane int, v uint32)    { *(*uint32)(unsafe.Add(p, 4*lane)) = v }
func put64(p unsafe.Pointer, lane int, v uint64)    { *(*uint64)(unsafe.Add(p, 8*lane)) = v }

// spread fills scratch row k with n copies of a single value.
func (g *group) spread(k int, from unsafe.Pointer, wide bool, n int) unsafe.Pointer {
	to := unsafe.Pointer(&g.scratch[k][0])
	if wide {
		movU64_x(to, from, nil, nil, n)
	} else {
		movU32_x(to, from, nil, nil, n)
	}
	return to
}

// runRow executes an arithmetic instruction.
func runRow(g *group, in *instr) {
	if in.d.kind == single {
		in.row(g.at(in.d, 0), g.at(in.a, 0), g.at(in.b, 0), g.at(in.c, 0), 1)
		return
	}
	lo, n := g.act.lo, g.act.hi-g.act.lo
	a, b, c := g.at(in.a, lo), g.at(in.b, lo), g.at(in.c, lo)
	if in.spread != 0 {
		if in.spread&1 != 0 {
			a = g.spread(0, a, in.wide&1 != 0, n)
		}
		if in.spread&2 != 0 {
			b = g.spread(1, b, in.wide&2 != 0, n)
		}
		if in.spread&4 != 0 {
			c = g.spread(2, c, in.wide&4 != 0, n)
		}
	}
	if g.act.dense {
		in.row(g.at(in.d, lo), a, b, c, n)
		return
	}
	t := unsafe.Pointer(&g.scratch[3][0])
	in.row(t, a, b, c, n)
	g.merge(in.d, t)
}

// merge copies the active lanes of a row that begins with the first active lane.
func (g *group) merge(d place, from unsafe.Pointer) {
	to, _ := g.row(d)
	lo := g.act.lo
	if d.kind == row64 {
		for _, l := range g.lanes() {
			put64(to, int(l), get64(from, 8, int(l)-lo))
		}
		return
	}
	for _, l := range g.lanes() {
		put32(to, int(l), get32(from, 4, int(l)-lo))
	}
}

// runCompare executes setp.
func runCompare(g *group, in *instr) {
	lo := g.act.lo &^ 63
	n := g.act.hi - lo
	a, b := g.at(in.a, lo), g.at(in.b, lo)
	if in.spread&1 != 0 {
		a = g.spread(0, a, in.wide&1 != 0, n)
	}
	if in.spread&2 != 0 {
		b = g.spread(1, b, in.wide&2 != 0, n)
	}
	var r mask
	in.row(unsafe.Pointer(&r[lo>>6]), a, b, nil, n)
	g.setPredicates(in, &r)
}

// setPredicates combines the outcome of a comparison with the third operand and writes p and q.
func (g *group) setPredicates(in *instr, r *mask) {
	not := mask{^r[0], ^r[1], ^r[2], ^r[3]}
	if in.boolOp != boolNone {
		c := g.predicateOf(in.c, in.notC)
		combine(r, &c, in.boolOp)
		combine(&not, &c, in.boolOp)
	}
	if in.d.kind == predicate {
		g.preds[in.d.slot].blend(r, &g.act.m)
	}
	if in.d2.kind == predicate {
		g.preds[in.d2.slot].blend(&not, &g.act.m)
	}
}

// runSelect executes selp.
func runSelect(g *group, in *instr) {
	m := g.predicateOf(in.c, in.notC)
	a, as := g.row(in.a)
	b, bs := g.row(in.b)
	d, _ := g.row(in.d)
	if in.d.kind == row64 {
		if g.act.dense {
			for l := g.act.lo; l < g.act.hi; l++ {
				x, y := get64(a, as, l), get64(b, bs, l)
				put64(d, l, y^(x^y)&-(m[l>>6&3]>>(l&63)&1))
			}
			return
		}
		for _, l := range g.lanes() {
			x := get64(b, bs, int(l))
			if m.has(int(l)) {
				x = get64(a, as, int(l))
			}
			put64(d, int(l), x)
		}
		return
	}
	if g.act.dense {
		for l := g.act.lo; l < g.act.hi; l++ {
			x, y := get32(a, as, l), get32(b, bs, l)
			put32(d, l, y^(x^y)&-uint32(m[l>>6&3]>>(l&63)&1))
		}
		return
	}
	for _, l := range g.lanes() {
		x := get32(b, bs, int(l))
		if m.has(int(l)) {
			x = get32(a, as, int(l))
		}
		put32(d, int(l), x)
	}
}

// laneFunc computes one lane. Operands and result are zero-extended bits.
type laneFunc func(a, b, c uint64) uint64

// rowOf makes a row kernel of a function of single lanes, for operands of the given sizes.
func rowOf(f laneFunc, wideD, wideA, wideB, wideC bool) rowFunc {
	load := func(p unsafe.Pointer, wide bool, i int) uint64 {
		switch {
		case p == nil:
			return 0
		case wide:
			return *(*uint64)(unsafe.Add(p, i*8))
		}
		return uint64(*(*uint32)(unsafe.Add(p, i*4)))
	}
	return func(d, a, b, c unsafe.Pointer, n int) {
		for i := range n {
			r := f(load(a, wideA, i), load(b, wideB, i), load(c, wideC, i))
			if wideD {
				*(*uint64)(unsafe.Add(d, i*8)) = r
			} else {
				*(*uint32)(unsafe.Add(d, i*4)) = uint32(r)
			}
		}
	}
}
