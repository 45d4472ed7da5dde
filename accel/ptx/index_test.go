package ptx

import "testing"

// Addresses become part of accesses only if all reads of them are accesses behind them in the block, while the index is
// unchanged.
func TestIndex(t *testing.T) {
	for _, c := range []struct {
		text    string
		indexed int
	}{
		{"mad.wide.u32 a, i, 4, p; ld.global.u32 v, [a]; st.global.u32 [a+8], v;", 2},
		{"mul.wide.s32 b, i, 4; add.s64 a, b, p; atom.global.add.u32 v, [a], 1; red.global.add.u32 [a], 1;", 2},
		{"mul.wide.u32 b, i, 4; add.s64 a, b, p; add.s64 c, q, b; ld.global.u32 v, [a]; st.global.u32 [c], v;", 2},
		{"mad.wide.u32 a, i, 4, p; @g ld.global.u32 v, [a];", 1},
		{"mad.wide.u32 a, i, 4, p; ld.global.u32 v, [a]; add.u64 c, a, 4;", 0},
		{"mad.wide.u32 a, i, 4, p; ld.global.u32 v, [a]; st.global.u64 [p], a;", 0},
		{"mad.wide.u32 a, i, 4, p; add.u32 i, i, 1; ld.global.u32 v, [a];", 0},
		{"mad.wide.u32 a, i, 4, p; ld.global.u32 i, [a];", 0},
		{"mad.wide.u32 a, i, 4, p; bar.sync 0; ld.global.u32 v, [a];", 0},
		{"mad.wide.u32 a, i, 4, p; mad.wide.u32 a, i, 4, p; ld.global.u32 v, [a];", 1},
		{"@g mad.wide.u32 a, i, 4, p; ld.global.u32 v, [a];", 0},
		{"mad.wide.u32 a, i, j, p; ld.global.u32 v, [a];", 0},
		{"mad.wide.u32 a, i, 0, p; ld.global.u32 v, [a];", 0},
		{"cvt.u64.u32 c, i; mad.wide.u32 a, i, 4, c; ld.global.u32 v, [a];", 0},
	} {
		m, err := Parse([]byte(`.version 7.0 .target sm_70 .address_size 64
.visible .entry k(.param .u64 in, .param .u64 out) { .reg .u32 i, j, v; .reg .u64 a, b, c, p, q; .reg .pred g;
ld.param.u64 p, [in]; ld.param.u64 q, [out]; mov.u32 i, %tid.x; mov.u32 j, %laneid; setp.lt.u32 g, i, 9;` + c.text + "ret; }"))
		if err != nil {
			t.Fatal(err)
		}
		body, err := m.Kernels[0].Body()
		if err != nil {
			t.Fatal(err)
		}
		blocks := body.Blocks()
		body.Fuse(blocks)
		body.Allocate(blocks)
		got := 0
		for i := range body.Insts {
			for _, o := range body.Insts[i].Args {
				if o.Index != nil {
					got++
				}
			}
		}
		if got != c.indexed {
			t.Errorf("%s: %d indexed accesses, want %d", c.text, got, c.indexed)
		}
	}
}
