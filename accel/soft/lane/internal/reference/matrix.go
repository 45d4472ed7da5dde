package reference

import (
	"fmt"
	"math/big"
)

// layout returns the row and column in the matrix of element i of a thread, by the figures of the manual for mma.
type layout func(lane, i int) (row, col int)

// The figures follow one rule. A quad of threads holds a row of A, or a column of B, and each thread as many neighbours
// along it as fit in a register of 32 bits (f64: one). Registers proceed down eight rows, then along.
func layoutA(rows, bits int) layout {
	n := max(32/bits, 1)
	high := rows / 8
	return func(lane, i int) (int, int) {
		reg := i / n
		return lane/4 + reg%high*8, lane%4*n + i%n + reg/high*4*n
	}
}

func layoutB(bits int) layout {
	n := max(32/bits, 1)
	return func(lane, i int) (int, int) { return lane%4*n + i%n + i/n*4*n, lane / 4 }
}

func layoutC(lane, i int) (int, int) { return lane/4 + i/2*8, lane%4*2 + i%2 }

// elementsOf assembles a matrix from the registers of all threads.
func (w *warp) elementsOf(lanes []*thread, o *operand, rows, cols int, as typ, at layout) [][]uint64 {
	m := make([][]uint64, rows)
	for r := range m {
		m[r] = make([]uint64, cols)
	}
	width := max(as.bits, 32)
	for _, t := range lanes {
		for i := range rows * cols / warpSize {
			row, col := at(t.lane(), i)
			reg := &o.list[i*as.bits/width]
			m[row][col] = cut(w.read(t, reg, typ{'b', width})>>(i*as.bits%width), as.bits)
		}
	}
	return m
}

// matrices executes the matrix operations of whole warps.
func (w *warp) matrices(in *inst, lanes []*thread) {
	if len(lanes) != warpSize {
		undefined(in.op + " by a part of a warp")
	}
	switch in.op {
	case "mma":
		w.mma(in, lanes)
	case "movmatrix":
		w.transpose(in, lanes)
	default:
		w.loadRows(in, lanes)
	}
}

func (w *warp) mma(in *inst, lanes []*thread) {
	var m, n, k int
	for name := range in.mods {
		if _, err := fmt.Sscanf(name, "m%dn%dk%d", &m, &n, &k); err == nil {
			break
		}
	}
	td, ta, tb, tc := in.types[0], in.types[1], in.types[2], in.types[3]
	if m == 8 && ta.bits == 16 || ta.float() && m*k == 256 && ta.bits == 64 {
		unknown(in) // have figures of their own
	}
	a := w.elementsOf(lanes, &in.args[1], m, k, ta, layoutA(m, ta.bits))
	b := w.elementsOf(lanes, &in.args[2], k, n, tb, layoutB(tb.bits))
	c := w.elementsOf(lanes, &in.args[3], m, n, tc, layoutC)
	d := map[[2]int]uint64{}
	for row := range m {
		for col := range n {
			column := make([]uint64, k)
			for i := range column {
				column[i] = b[i][col]
			}
			if ta.float() {
				d[[2]int{row, col}] = dotFloats(a[row], column, c[row][col], td, ta, tc)
			} else {
				d[[2]int{row, col}] = dotIntegers(in, a[row], column, c[row][col])
			}
		}
	}
	width := max(td.bits, 32)
	for _, t := range lanes {
		regs := make([]uint64, len(in.args[0].list))
		for i := range m * n / warpSize {
			row, col := layoutC(t.lane(), i)
			regs[i*td.bits/width] |= d[[2]int{row, col}] << (i * td.bits % width)
		}
		for i, v := range regs {
			w.write(t, &in.args[0].list[i], v)
		}
	}
}

func dotIntegers(in *inst, a, b []uint64, c uint64) uint64 {
	sum := whole(c, typ{'s', 32})
	for i := range a {
		x, y := whole(a[i], in.types[1]), whole(b[i], in.types[2])
		switch {
		case in.mods["xor"]:
			sum.Add(sum, x.Xor(x, y))
		case in.mods["and"]:
			sum.Add(sum, x.And(x, y))
		default:
			sum.Add(sum, x.Mul(x, y))
		}
	}
	if in.mods["satfinite"] {
		sum = clamp(sum, typ{'s', 32})
	}
	return wrap(sum, 32)
}

// dotFloats rounds the exact sum once. Programs only compute it of finite numbers with a sum that is exact in every
// implementation.
func dotFloats(a, b []uint64, c uint64, td, ta, tc typ) uint64 {
	f := formatOf(ta)
	bad := func(f format, v uint64) bool { return f.isNaN(v) || f.isInf(v) }
	if bad(formatOf(tc), c) {
		undefined("a product of matrices with a number that is not finite")
	}
	sum := exact().Set(formatOf(tc).number(c))
	for i := range a {
		if bad(f, a[i]) || bad(f, b[i]) {
			undefined("a product of matrices with a number that is not finite")
		}
		sum.Add(sum, exact().Mul(f.number(a[i]), f.number(b[i])))
	}
	if sum.Sign() == 0 {
		return 0
	}
	return formatOf(td).round(sum, "rn")
}

// transpose is movmatrix: thread 4r+c has columns 2c and 2c+1 of row r.
func (w *warp) transpose(in *inst, lanes []*thread) {
	var m [8][8]uint64
	for l, t := range lanes {
		v := w.read(t, &in.args[1], typ{'b', 32})
		m[l/4][l%4*2], m[l/4][l%4*2+1] = cut(v, 16), v>>16
	}
	for l, t := range lanes {
		w.write(t, &in.args[0], m[l%4*2][l/4]|m[l%4*2+1][l/4]<<16)
	}
}

// loadRows is ldmatrix: threads 8i to 8i+7 have the addresses of the rows of matrix i.
func (w *warp) loadRows(in *inst, lanes []*thread) {
	count := map[bool]int{in.mods["x1"]: 1, in.mods["x2"]: 2, in.mods["x4"]: 4}[true]
	for i := range count {
		var m [8][8]uint64
		for row := range 8 {
			mem, _ := w.memory(in, lanes[8*i+row], &in.args[1], 16)
			for col := range 8 {
				m[row][col] = new(big.Int).SetBytes([]byte{mem[2*col+1], mem[2*col]}).Uint64()
			}
		}
		for l, t := range lanes {
			r, c := l/4, l%4*2
			v := m[r][c] | m[r][c+1]<<16
			if in.mods["trans"] {
				v = m[c][r] | m[c+1][r]<<16
			}
			w.write(t, &in.args[0].list[i], v)
		}
	}
}
