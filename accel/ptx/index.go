package ptx

var opAtom, opRed = OpOf("atom"), OpOf("red")

// maxScale bounds the factor of indices.
const maxScale = 1 << 16

// indexed is an access to base + index·scale, which a mad.wide computed.
type indexed struct{ access, arg, mad int }

// index makes addresses that a mad.wide computes a part of the loads, stores and atomics that use them, if no other
// instruction does: a base that is the same for all threads, and an index. The caller removes the mad.wide that are no
// longer read.
func (b *Body) index(blocks []Block, uniform []bool) {
	var found []indexed
	for k := range blocks {
		found = b.indexedIn(&blocks[k], uniform, found)
	}
	if len(found) == 0 {
		return
	}
	others := make([]int32, len(b.Regs)) // other reads
	for i := range b.Insts {
		b.Insts[i].Visit(func(r int32, written bool) {
			if !written {
				others[r]++
			}
		})
	}
	for _, f := range found {
		others[b.Insts[f.access].Args[f.arg].Reg]--
	}
	for _, f := range found {
		o, mad := &b.Insts[f.access].Args[f.arg], &b.Insts[f.mad]
		if others[o.Reg] == 0 {
			o.Reg = mad.Args[3].Reg
			o.Index = &Index{mad.Args[1].Reg, mad.Args[2].Imm, mad.Type.Signed()}
		}
	}
}

// indexedIn appends the accesses of a block to addresses that the block has computed.
func (b *Body) indexedIn(blk *Block, uniform []bool, found []indexed) []indexed {
	var mads map[int32]int // instructions, by the register that has their result
	for i := blk.First; i < blk.End; i++ {
		in := &b.Insts[i]
		if arg, ok := in.addressArg(); ok && len(mads) > 0 {
			r := in.Args[arg].Reg
			if mad, ok := mads[r]; ok && !in.writes(b.Insts[mad].Args[1].Reg) {
				found = append(found, indexed{i, arg, mad})
			}
		}
		if len(mads) > 0 {
			in.Visit(func(r int32, written bool) {
				if written {
					b.forget(mads, r)
				}
			})
		}
		if in.indexes(uniform) {
			if mads == nil {
				mads = map[int32]int{}
			}
			mads[in.Args[0].Reg] = i
		}
	}
	return found
}

// indexes reports whether the instruction adds an index times a number to a uniform base.
func (in *Inst) indexes(uniform []bool) bool {
	if in.Op != opMad || !in.Mods.Has(Wide) || in.Type.Size() != 4 || in.Guard != None {
		return false
	}
	d, a, s, c := &in.Args[0], &in.Args[1], &in.Args[2], &in.Args[3]
	return d.Kind == Register && a.Kind == Register && s.Kind == Integer && c.Kind == Register &&
		!uniform[d.Reg] && uniform[c.Reg] && s.Imm > 0 && s.Imm <= maxScale && d.Reg != a.Reg
}

// addressArg returns the argument with the address of a load, store or atomic.
func (in *Inst) addressArg() (arg int, ok bool) {
	switch in.Op {
	case opLd, opAtom:
		arg = 1
	case opSt, opRed:
	default:
		return 0, false
	}
	if arg >= len(in.Args) || in.Mods.Has(Async) || in.Mods.Has(Bulk) {
		return 0, false
	}
	o := &in.Args[arg]
	return arg, o.Kind == Address && o.Var == nil && o.Reg != None
}

// writes reports whether the instruction writes a register.
func (in *Inst) writes(reg int32) (yes bool) {
	in.Visit(func(r int32, written bool) { yes = yes || written && r == reg })
	return yes
}
