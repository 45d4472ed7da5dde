package gen

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"unsafe"

	"pegasus/accel/soft/lane/arith"
	"pegasus/accel/soft/lane/code"
	"pegasus/accel/soft/lane/internal/lanetest"
	"pegasus/accel/soft/lane/ir"
)

// state is the registers of a group, as the executor lays them out.
type state struct {
	rows32  [8][Stride32 / 4]uint32
	rows64  [8][Stride64 / 8]uint64
	preds   [8][4]uint64
	singles [8]uint64
	active  [4]uint64
}

func needCompiler(t *testing.T) {
	t.Helper()
	if arith.VectorLevel < 2 {
		t.Skip("THE COMPILER IS NOT TESTED: the processor lacks AVX-512")
	}
	if err := code.Prepare(); err != nil {
		t.Fatal(err)
	}
}

// run executes a span of a result for lanes from a unit's first one on.
func (s *state) run(t *testing.T, r *Result, from, n int, masked bool) {
	t.Helper()
	entry, err := code.Place(r.Code)
	if err != nil {
		t.Fatal(err)
	}
	f := &Frame{Rows32: unsafe.Pointer(&s.rows32[0][from]), Rows64: unsafe.Pointer(&s.rows64[0][from]), Singles: unsafe.Pointer(&s.singles),
		Predicates: unsafe.Add(unsafe.Pointer(&s.preds), from/8), Active: unsafe.Add(unsafe.Pointer(&s.active), from/8), Units: uint64(n / UnitLanes)}
	at := r.Spans[0].Code
	if masked {
		at = r.Spans[0].Masked
	}
	(entry + code.Entry(at)).Call(unsafe.Pointer(f))
}

// place returns the place of an operand: 0 is the result, 1 to 3 are the sources.
func place(i int, wide, single bool) ir.Place {
	switch {
	case single:
		return ir.Place{Kind: ir.Single, Slot: int32(i)}
	case wide:
		return ir.Place{Kind: ir.Row64, Slot: int32(i)}
	}
	return ir.Place{Kind: ir.Row32, Slot: int32(i)}
}

// operands returns the number of sources of a row operation.
func operands(name string) int {
	switch name {
	case "bfeU32", "fmaF32", "madU32", "madWideU", "madWideS":
		return 3
	case "movU32", "movU64", "notU32", "negU32", "cvtU16", "cvtS16", "cvtU8", "cvtS8", "cvtU64U32", "cvtS64S32", "cvtU32U64", "sqrtF32", "rcpF32", "negF32", "absF32",
		"cvtF32S32", "cvtF32U32", "cvtS32F32", "rsqrtF32", "rsqrtFtzF32", "ex2F32", "ex2FtzF32", "lg2F32", "lg2FtzF32":
		return 1
	}
	return 2
}

// Each row operation has the results of package arith, to the bit, for the active lanes only, and for all choices of
// operands that are single values or the result's row.
func TestRows(t *testing.T) {
	needCompiler(t)
	random := lanetest.Random(3)
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		t.Run(name, func(t *testing.T) {
			wide, n := widthsOf(name), operands(name)
			for choice := range 1 << (n + 1) {
				compares := name[:3] == "cmp"
				in := ir.Instr{Op: ir.OpRow, Row: name, Guard: -1, Dst: place(0, wide[0], false)}
				if compares {
					in.Op, in.Dst = ir.OpCompare, ir.Place{Kind: ir.Predicate, Slot: 1}
				}
				src := []*ir.Place{&in.A, &in.B, &in.C}[:n]
				for i, p := range src {
					*p = place(i+1, wide[i+1], choice>>i&1 != 0)
				}
				if choice>>n != 0 && !compares && in.A.Kind == in.Dst.Kind { // the result replaces an operand
					in.A.Slot = 0
				}
				p := &ir.Program{Rows32: 8, Rows64: 8, Predicates: 8, Blocks: []ir.Block{{Code: []ir.Instr{in}, Ending: ir.Calls, Guard: -1}}}
				r := &Result{Blocks: p.Blocks, Spans: []Span{{Count: 1}}}
				e := &emitter{space: space{8, 8, 8}}
				live := make(slots, 1)
				live.all()
				e.span(&r.Spans[0], p.Blocks[0].Code, live)
				r.Code = e.Finish()
				for _, masked := range []bool{false, true} {
					compareRow(t, r, &in, n, masked, func() uint64 {
						v := lanetest.Specials[random.IntN(len(lanetest.Specials))]
						switch random.IntN(3) {
						case 0:
							v = random.Uint64()
						case 1:
							v = uint64(0x3f000000+random.Uint32N(0x2000000)) | uint64(random.Uint32()&1)<<31
						}
						return v
					})
				}
			}
		})
	}
}

func compareRow(t *testing.T, r *Result, in *ir.Instr, n int, masked bool, random func() uint64) {
	t.Helper()
	s := new(state)
	for i := range s.rows32 {
		for k := range s.rows32[i] {
			s.rows32[i][k] = uint32(random())
		}
		for k := range s.rows64[i] {
			s.rows64[i][k] = random()
		}
		s.singles[i] = random()
		for k := range s.preds[i] {
			s.preds[i][k] = random()
		}
	}
	for i := range s.active {
		if s.active[i] = ^uint64(0); masked {
			s.active[i] = random() ^ random()<<17
		}
	}
	const from, lanes = 64, 128
	want := *s
	row := arith.PlainRow(in.Row)
	var p [3]unsafe.Pointer
	scalars := 0
	for i, q := range []ir.Place{in.A, in.B, in.C}[:n] {
		switch q.Kind {
		case ir.Single:
			p[i] = unsafe.Pointer(&want.singles[q.Slot])
			scalars |= 1 << i
		case ir.Row64:
			p[i] = unsafe.Pointer(&want.rows64[q.Slot][from])
		default:
			p[i] = unsafe.Pointer(&want.rows32[q.Slot][from])
		}
	}
	var out [Stride64 / 8]uint64
	row(unsafe.Pointer(&out), p[0], p[1], p[2], lanes, scalars)
	for l := range lanes {
		at := from + l
		if s.active[at>>6]>>(at&63)&1 == 0 {
			continue
		}
		switch in.Dst.Kind {
		case ir.Row64:
			want.rows64[in.Dst.Slot][at] = out[l]
		case ir.Row32:
			want.rows32[in.Dst.Slot][at] = uint32(out[l/2] >> (l & 1 * 32))
		default:
			w := &want.preds[in.Dst.Slot][at>>6]
			*w = *w&^(1<<(at&63)) | out[l>>6]>>(l&63)&1<<(at&63)
		}
	}
	s.run(t, r, from, lanes, masked)
	if *s == want {
		return
	}
	for l := range lanes {
		at := from + l
		if got, want := s.rows32[in.Dst.Slot][at], want.rows32[in.Dst.Slot][at]; in.Dst.Kind == ir.Row32 && got != want {
			a, b := p[0], p[1]
			text := fmt.Sprintf("%#x", arith.Get32(a, arith.Pick(in.A.Kind == ir.Single, 4, 0), l))
			if b != nil && in.B.Kind != ir.Row64 {
				text += fmt.Sprintf(", %#x", arith.Get32(b, arith.Pick(in.B.Kind == ir.Single, 4, 0), l))
			}
			t.Fatalf("%+v %s, lane %d of %s: got %#x, want %#x", in.Scalars, in.Row, l, text, got, want)
		}
	}
	t.Fatalf("%s masked %v: dst %v a %v b %v c %v: the registers differ", in.Row, masked, in.Dst, in.A, in.B, in.C)
}
