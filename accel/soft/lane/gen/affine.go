package gen

import (
	"slices"

	"pegasus/accel/soft/lane/ir"
)

// minAffine is the number of instructions of a run that computes affine registers, from which on a call pays off.
var minAffine = 3

// withAffine adds the runs that compute affine registers. They are those of consecutive instructions whose results are
// not alive at the end of the block: others, such as the counters of loops, are better kept as numbers.
func withAffine(spans []Span, blocks []ir.Block, s space, alive []slots) (all []Span) {
	number := 0
	for i := range blocks {
		code := blocks[i].Code
		own := []Span{}
		for len(spans) > 0 && spans[0].Block == i {
			own = append(own, spans[0])
			spans = spans[1:]
		}
		for at := 0; at < len(code); {
			n := 0
			for at+n < len(code) && n < maxRun && rowable(&code[at+n]) && !alive[i].has(s.number(code[at+n].Dst)) {
				n++
			}
			if n >= min(minAffine, MinWork) {
				own = append(own, Span{Block: i, At: at, Count: n, Affine: affineOf(code[at:at+n], slices.Concat(code[:at], code[at+n:]), number)})
				number++
			}
			at += n + 1
		}
		slices.SortStableFunc(own, func(a, b Span) int { return a.At - b.At })
		all = append(all, own...)
	}
	return all
}

// rowable reports whether an instruction computes an affine register, and can be part of a run that computes it as a
// row.
func rowable(in *ir.Instr) bool {
	if in.Op != ir.OpRow || in.Dst.Affine == 0 {
		return false
	}
	plain := *in
	plain.Dst.Affine = 0
	return supported(&plain)
}

// affineOf describes a run that computes affine registers. Those that other instructions of the block write are most
// likely counters, which are numbers.
func affineOf(code, others []ir.Instr, number int) *Affine {
	a := &Affine{Number: number}
	has := func(list []ir.Place, p ir.Place) bool {
		return slices.ContainsFunc(list, func(o ir.Place) bool { return same(o, p) })
	}
	for i := range code {
		reads(&code[i], func(p ir.Place) {
			switch {
			case p.Affine == 0 || has(a.Results, p) || has(a.Inputs, p) || has(a.Counters, p):
			case p.Kind == ir.Row32 && len(a.Counters) < MaxCounters && written(others, p) && !written(code, p):
				a.Counters = append(a.Counters, p)
			default:
				a.Inputs = append(a.Inputs, p)
			}
		})
		if !has(a.Results, code[i].Dst) {
			a.Results = append(a.Results, code[i].Dst)
		}
	}
	return a
}
