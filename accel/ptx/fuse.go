package ptx

var opMul, opMad = OpOf("mul"), OpOf("mad")

// Fuse turns additions of a mul.wide's product, which programs use for addresses, into mad.wide. The caller removes the
// products that are no longer read.
func (b *Body) Fuse(blocks []Block) {
	for k := range blocks {
		products := map[int32]int{} // instructions, by the register that has their result
		for i := blocks[k].First; i < blocks[k].End; i++ {
			in := &b.Insts[i]
			b.fuse(in, products)
			in.Visit(func(r int32, written bool) {
				if written {
					b.forget(products, r)
				}
			})
			if in.product() {
				products[in.Args[0].Reg] = i
			}
		}
	}
}

// product reports whether the instruction is a mul.wide that can be computed later instead.
func (in *Inst) product() bool {
	if in.Op != opMul || !in.Mods.Has(Wide) || in.Type.Size() != 4 || in.Guard != None || in.Args[0].Kind != Register {
		return false
	}
	steady := func(o *Operand) bool { return o.Kind == Register || o.Kind == Integer }
	return steady(&in.Args[1]) && steady(&in.Args[2])
}

// fuse makes an addition of two registers a mad.wide if one is a product.
func (b *Body) fuse(in *Inst, products map[int32]int) {
	if in.Op != opAdd || in.Type != S64 && in.Type != U64 || in.Mods != (Mods{}) || in.Args[1].Kind != Register || in.Args[2].Kind != Register {
		return
	}
	for k := 1; k <= 2; k++ {
		if p, ok := products[in.Args[k].Reg]; ok {
			m := &b.Insts[p]
			in.Op, in.Type, in.Mods, in.Form = opMad, m.Type, m.Mods, "Waaw"
			in.Args = []Operand{in.Args[0], m.Args[1], m.Args[2], in.Args[3-k]}
			return
		}
	}
}

// forget drops the products that are in register r, or made from it.
func (b *Body) forget(products map[int32]int, r int32) {
	for reg, p := range products {
		args := b.Insts[p].Args
		if reg == r || args[1].Reg == r || args[2].Reg == r {
			delete(products, reg)
		}
	}
}
