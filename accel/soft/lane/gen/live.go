package gen

import (
	"reflect"

	"pegasus/accel/soft/lane/ir"
)

// slots is a set of row and predicate slots.
type slots []uint64

// space numbers the slots of a program: rows of 32 bits, rows of 64 bits, predicates.
type space struct{ rows32, rows64, preds int }

func (s space) words() int { return (s.rows32 + s.rows64 + s.preds + 63) / 64 }

// number returns the number of a place, or -1 if it is no row or predicate. Affine registers are rows as well.
func (s space) number(p ir.Place) int {
	switch p.Kind {
	case ir.Row32:
		return int(p.Slot)
	case ir.Row64:
		return s.rows32 + int(p.Slot)
	case ir.Predicate:
		return s.rows32 + s.rows64 + int(p.Slot)
	}
	return -1
}

func (l slots) has(n int) bool { return l[n>>6]>>(n&63)&1 != 0 }
func (l slots) add(n int)      { l[n>>6] |= 1 << (n & 63) }
func (l slots) drop(n int)     { l[n>>6] &^= 1 << (n & 63) }

// include adds all of o, and reports whether any of these were missing.
func (l slots) include(o slots) (more bool) {
	for i, w := range o {
		more = more || w&^l[i] != 0
		l[i] |= w
	}
	return more
}

func (l slots) all() {
	for i := range l {
		l[i] = ^uint64(0)
	}
}

// reads calls f with the places that an instruction reads or may leave partly unchanged.
func reads(in *ir.Instr, f func(p ir.Place)) {
	f(in.A)
	f(in.B)
	f(in.C)
	f(in.Mem.Address)
	f(in.Mem.Base)
	if in.Guard >= 0 {
		f(ir.Place{Slot: in.Guard, Kind: ir.Predicate})
		f(in.Dst)
		f(in.Dst2)
	}
	if in.Detail != nil {
		ir.Places(reflect.ValueOf(in.Detail), f)
	}
}

// before turns the slots that are alive behind an instruction into those that are before it.
func (s space) before(l slots, in *ir.Instr) {
	for _, d := range []ir.Place{in.Dst, in.Dst2} {
		if n := s.number(d); n >= 0 {
			l.drop(n)
		}
	}
	reads(in, func(p ir.Place) {
		if n := s.number(p); n >= 0 {
			l.add(n)
		}
	})
}

// endings adds the slots that the end of a block reads.
func (s space) ending(l slots, b *ir.Block) {
	if b.Guard >= 0 {
		l.add(s.number(ir.Place{Slot: b.Guard, Kind: ir.Predicate}))
	}
	if b.Barrier != nil {
		ir.Places(reflect.ValueOf(b.Barrier), func(p ir.Place) {
			if n := s.number(p); n >= 0 {
				l.add(n)
			}
		})
	}
	if b.Ending == ir.Calls || b.Ending == ir.Returns { // the other function's code follows
		l.all()
	}
}

// alive returns for each block the slots that are alive at its end, before the ending. ok is false if that takes too
// long.
func (s space) alive(p *ir.Program) (out []slots, ok bool) {
	n := s.words()
	in := make([]slots, len(p.Blocks))
	out = make([]slots, len(p.Blocks))
	for i := range p.Blocks {
		in[i], out[i] = make(slots, n), make(slots, n)
		s.ending(out[i], &p.Blocks[i])
	}
	work := make(slots, n)
	rounds := 0
	for changed := true; changed; rounds++ {
		if rounds == maxRounds {
			return nil, false
		}
		changed = false
		for i := len(p.Blocks) - 1; i >= 0; i-- {
			b := &p.Blocks[i]
			for _, to := range successors(b) {
				if to >= 0 && int(to) < len(p.Blocks) {
					out[i].include(in[to])
				}
			}
			copy(work, out[i])
			for k := len(b.Code) - 1; k >= 0; k-- {
				s.before(work, &b.Code[k])
			}
			changed = in[i].include(work) || changed
		}
	}
	return out, true
}

// successors returns the blocks that may follow one within its function; -1: none.
func successors(b *ir.Block) [2]int32 {
	switch {
	case b.Ending == ir.Jumps && b.Guard >= 0:
		return [2]int32{b.Target, b.Next}
	case b.Ending == ir.Jumps:
		return [2]int32{b.Target, -1}
	case (b.Ending == ir.Exits || b.Ending == ir.Traps) && b.Guard < 0:
		return [2]int32{-1, -1}
	}
	return [2]int32{b.Next, -1}
}
