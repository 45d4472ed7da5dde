package ptx

import (
	"math/rand/v2"
	"reflect"
	"testing"
)

// Unpacking restores the packed code.
func TestPack(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 9))
	vars := []*Var{{Name: "a"}, {Name: "b", Space: Shared}, {Name: "c"}}
	functions := []*Func{{Name: "f"}, {Name: "g"}}
	sometimes := func() bool { return r.IntN(3) == 0 }
	register := func() int32 { return int32(r.IntN(1<<r.IntN(20))) - 1 }
	var operand func(depth int) Operand
	operand = func(depth int) Operand {
		o := Operand{Kind: OperandKind(r.IntN(int(Texture) + 1)), Not: sometimes(), Reg: register(), Pair: None}
		if sometimes() {
			o.Pair = register()
			o.Sel = Selector{Half: sometimes(), N: uint8(r.IntN(5)), parts: uint16(r.IntN(1 << 16))}
			o.Imm = r.Uint64() >> r.IntN(64)
		}
		if sometimes() {
			o.Var, o.Func = vars[r.IntN(len(vars))], functions[r.IntN(len(functions))]
			for range r.IntN(4 - depth) {
				o.Elems = append(o.Elems, operand(depth+1))
				o.Returns = r.IntN(3)
			}
		}
		if o.Kind == Label {
			o.Imm = 0 // the only target
		}
		return o
	}
	k := packer{code: code{templates: &templates{number: map[template]int{}}}}
	for range 20 {
		var want []Inst
		k.begin()
		k.targets = append(k.targets, 0)
		for range r.IntN(200) {
			in := Inst{Line: int32(r.IntN(1 << 20)), Guard: register(), Not: sometimes(), Op: Op(r.IntN(3)), Type: Type(r.IntN(3)), Form: []string{"Aaa", "Ma"}[r.IntN(2)]}
			in.Mods.Add(Mod(r.IntN(2)))
			for range r.IntN(4) {
				in.Args = append(in.Args, operand(0))
			}
			k.add(&in, k.templates.of(&in))
			want = append(want, in)
		}
		c := k.end()
		k.begin() // which must not matter
		k.add(&Inst{Args: []Operand{operand(0)}}, 0)
		if c.count != len(want) {
			t.Fatalf("%d instructions, want %d", c.count, len(want))
		}
		text := c.unpack()
		for i := range want {
			var got Inst
			if text.next(&got); !reflect.DeepEqual(got, want[i]) {
				t.Fatalf("instruction %d is\n%+v, want\n%+v", i, got, want[i])
			}
		}
		if len(text.rest) != 0 || len(text.slab) != 0 {
			t.Errorf("%d bytes and %d operands are left over", len(text.rest), len(text.slab))
		}
	}
}
