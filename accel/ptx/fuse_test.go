package ptx

import "testing"

// Sums of a product become mad.wide as long as its factors and the product are unchanged.
func TestFuse(t *testing.T) {
	m, err := Parse([]byte(`.version 7.0
.target sm_70
.address_size 64
.visible .entry k() {
	.reg .u32 a, b; .reg .u64 p, q, base, s; .reg .pred g;
	mul.wide.u32 p, a, 4;
	add.u64 s, base, p;   // fused
	add.s64 s, p, base;   // fused
	add.u64 s, p, 8;
	mov.u32 a, b;
	add.u64 s, base, p;   // a has changed
	mul.wide.s32 q, a, b;
	@g add.u64 s, q, base; // fused
	mov.u64 q, base;
	add.u64 s, q, base;   // q has changed
	mul.wide.u32 p, %clock, 4;
	add.u64 s, base, p;   // a later clock is another
	@g mul.wide.u32 p, a, 4;
	add.u64 s, base, p;   // perhaps no product
	ret;
}`))
	if err != nil {
		t.Fatal(err)
	}
	body, err := m.Kernels[0].Body()
	if err != nil {
		t.Fatal(err)
	}
	body.Fuse(body.Blocks())
	fused := map[int32]bool{7: true, 8: true, 13: true}
	for i := range body.Insts {
		in := &body.Insts[i]
		if is := in.Op == opMad; is != fused[in.Line] {
			t.Errorf("line %d: %s", in.Line, in.Op)
		}
	}
}
