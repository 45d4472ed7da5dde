package ptx

import "errors"

// Selector selects the bytes or halves of a register that an operand of a video instruction is: one for %r.b2 or %r.h1;
// several, the lowest first, for the SIMD forms.
type Selector struct {
	Half  bool // halves, not bytes
	N     uint8
	parts uint16
}

// Part returns the number of the i-th byte or half.
func (s Selector) Part(i int) int { return int(s.parts >> (4 * i) & 15) }

// selected parses a register with a selector.
func (b *builder) selected(base, part string) (o Operand, ok bool) {
	o.Pair = None
	if o.Reg, ok = b.scope.register(base); ok {
		o.Sel, ok = selector(part)
	}
	return o, ok
}

// selector parses b0 to b3, h0, h1 and, for SIMD, several digits, highest first.
func selector(s string) (sel Selector, ok bool) {
	sel.Half = s[0] == 'h'
	if s[0] != 'b' && s[0] != 'h' || len(s) < 2 || len(s) > 5 || sel.Half && len(s) > 3 {
		return sel, false
	}
	limit := byte('7')
	if sel.Half {
		limit = '3'
	}
	for i := len(s) - 1; i > 0; i-- {
		if s[i] < '0' || s[i] > limit {
			return sel, false
		}
		sel.parts |= uint16(s[i]-'0') << (4 * sel.N)
		sel.N++
	}
	return sel, true
}

// simd returns the number of lanes of a SIMD video instruction, or 1.
func (o Op) simd() int {
	name := o.String()
	switch name[len(name)-1] {
	case '2':
		return 2
	case '4':
		return 4
	}
	return 1
}

// video checks an operand of a video instruction.
func (c checker) video(in *Inst, o *Operand, written bool) error {
	plain := *o
	plain.Not = false
	n := in.Op.simd()
	sel := o.Sel
	switch {
	case sel.N == 0:
	case n == 1 && (sel.N != 1 || sel.Part(0) >= 4 || sel.Half && sel.Part(0) >= 2),
		n > 1 && sel.Half != (n == 2),
		n > 1 && !written && int(sel.N) != n,
		n > 1 && written && !sel.mask(n),
		n == 1 && written && (len(in.Args) < 4 || in.Op == opVmad):
		return errValue
	}
	if written && n == 1 && !in.merges() {
		return errors.New("wants a selector, or an operation with the last operand")
	}
	if written {
		return c.written(&plain, 4)
	}
	if o.Not && in.Op != opVmad {
		return errValue
	}
	return c.read(&plain, 4)
}

// merges reports whether an instruction with four operands uses the last.
func (in *Inst) merges() bool {
	return len(in.Args) < 4 || in.Op == opVmad || in.Args[0].Sel.N > 0 || in.Mods.Has(Add) || in.Mods.Has(Min) || in.Mods.Has(Max)
}

var opVmad = OpOf("vmad")

// mask reports whether the parts name lanes below n, each once, in order.
func (s Selector) mask(n int) bool {
	for i := range int(s.N) {
		if s.Part(i) >= n || i > 0 && s.Part(i) <= s.Part(i-1) {
			return false
		}
	}
	return true
}
