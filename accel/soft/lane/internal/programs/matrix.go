package programs

import (
	"fmt"
	"strings"
)

// product is a form of mma, with the numbers of registers of D and C, A and B.
type product struct {
	form, types string
	d, a, b     int
}

// Products of integers, with the possible types of A and B.
var products = []product{
	{"m8n8k16", "u8 s8", 2, 1, 1}, {"m16n8k16", "u8 s8", 4, 2, 1}, {"m16n8k32", "u8 s8", 4, 4, 2},
	{"m8n8k32", "u4 s4", 2, 1, 1}, {"m16n8k32", "u4 s4", 4, 2, 1}, {"m16n8k64", "u4 s4", 4, 4, 2},
	{"m8n8k128", "b1", 2, 1, 1}, {"m16n8k128", "b1", 4, 2, 1}, {"m16n8k256", "b1", 4, 4, 2},
}

// Products of floats: in A and B are numbers of 16 bits.
var floatProducts = []product{
	{"m16n8k8", "f32.f16.f16.f32", 4, 2, 1}, {"m16n8k16", "f32.f16.f16.f32", 4, 4, 2},
	{"m16n8k8", "f16.f16.f16.f16", 2, 2, 1}, {"m16n8k16", "f16.f16.f16.f16", 2, 4, 2},
	{"m16n8k8", "f32.bf16.bf16.f32", 4, 2, 1}, {"m16n8k16", "f32.bf16.bf16.f32", 4, 4, 2},
}

// matrix generates a matrix operation of whole warps.
func (w *writer) matrix() string {
	switch w.IntN(5) {
	case 0:
		return "movmatrix.sync.aligned.m8n8.trans.b16 " + w.target('r') + ", " + w.register('r')
	case 1: // rows that other threads have stored
		n := oneOf(w, 1, 2, 4)
		return fmt.Sprintf("bar.sync 0; ldmatrix.sync.aligned.m8n8.x%d%s.b16 %s, [%%sg+%d]; bar.sync 0",
			n, oneOf(w, "", ".trans"), w.fragment(n), 16*w.IntN(2))
	case 2:
		return w.floatProduct()
	case 3:
		return w.longProduct()
	}
	p := products[w.IntN(len(products))]
	types := strings.Fields(p.types)
	ta, tb, after, sat := oneOf(w, types...), oneOf(w, types...), "", oneOf(w, "", ".satfinite")
	if ta == "b1" {
		after, sat = oneOf(w, ".xor.popc", ".and.popc"), ""
	}
	return fmt.Sprintf("mma.sync.aligned.%s.row.col%s.s32.%s.%s.s32%s %s, %s, %s, %s",
		p.form, sat, ta, tb, after, w.fragment(p.d), w.fragment(p.a), w.fragment(p.b), w.fragment(p.d))
}

// fragment returns a vector of registers, all different.
func (w *writer) fragment(n int) string {
	var names []string
	for _, k := range w.Perm(8)[:n] {
		names = append(names, fmt.Sprintf("%%r%d", k))
	}
	return "{" + strings.Join(names, ", ") + "}"
}

// floatProduct multiplies numbers of similar magnitude, so that their sums are exact before they are rounded.
func (w *writer) floatProduct() string {
	p := floatProducts[w.IntN(len(floatProducts))]
	names, next := make([]string, 8), 0
	for i, k := range w.Perm(8) {
		names[i] = fmt.Sprintf("%%r%d", k)
	}
	var b strings.Builder
	take := func(n int, keep, set string) string {
		list := names[next : next+n]
		next += n
		for _, r := range list {
			fmt.Fprintf(&b, "and.b32 %s, %s, %s; or.b32 %s, %s, %s; ", r, r, keep, r, r, set)
		}
		return strings.Join(list, ", ")
	}
	keep, keepC, setC := "0x83ff83ff", "0x807fffff", "0x41000000"
	if strings.Contains(p.types, "bf16") {
		keep = "0x807f807f"
	}
	if p.d == 2 {
		keepC, setC = keep, "0x40004000"
	}
	a := take(min(p.a, 2), keep, "0x40004000")
	if p.a == 4 {
		a += ", " + a
	}
	bs, c := take(p.b, keep, "0x40004000"), take(p.d, keepC, setC)
	return b.String() + fmt.Sprintf("mma.sync.aligned.%s.row.col.%s {%s}, {%s}, {%s}, {%s}", p.form, p.types, c, a, bs, c)
}

// longProduct is floatProduct of f64.
func (w *writer) longProduct() string {
	form := oneOf(w, product{"m8n8k4", "", 2, 1, 1}, product{"m16n8k4", "", 4, 2, 1})
	regs := w.Perm(8)
	var b strings.Builder
	for _, r := range regs {
		fmt.Fprintf(&b, "and.b64 %%l%d, %%l%d, 0x800ffff000000000; or.b64 %%l%d, %%l%d, 0x4000000000000000; ", r, r, r, r)
	}
	list := func(first, n int) string {
		var names []string
		for _, r := range regs[first : first+n] {
			names = append(names, fmt.Sprintf("%%l%d", r))
		}
		return "{" + strings.Join(names, ", ") + "}"
	}
	return b.String() + fmt.Sprintf("mma.sync.aligned.%s.row.col%s.f64.f64.f64.f64 %s, %s, %s, %s", form.form, oneOf(w, "", ".rn"),
		list(0, form.d), list(form.d, form.a), list(form.d+form.a, form.b), list(0, form.d))
}
