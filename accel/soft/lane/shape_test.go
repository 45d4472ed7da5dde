package lane

import (
	"testing"

	"pegasus/accel/ptx"
)

// A load after another instruction with the same address register accesses its own memory, whether or not that one had
// determined the shape of the addresses.
func TestSameAddressRegister(t *testing.T) {
	const lanes = 64
	for _, first := range []string{
		"atom.global.exch.b32 v, [a], t;", "atom.global.add.u32 v, [a], t;", "atom.global.max.u32 v, [a], t;", "red.global.add.u32 [a], t;",
		"st.global.u32 [a], t;", "st.volatile.global.u32 [a], t;", "ld.volatile.global.u32 v, [a];", "@q st.global.u32 [a], t;", "@!q st.global.u32 [a], t;",
		"ld.global.u32 v, [a];", "@q ld.global.u32 v, [a];", "prefetch.global.L1 [a];",
	} {
		t.Run(first, func(t *testing.T) {
			d := newDevice(t)
			k := d.kernel(d.load([]byte(`.version 7.0 .target sm_70 .address_size 64
.visible .entry k(.param .u64 in, .param .u64 out) {
	.reg .u32 t, v; .reg .u64 a, b; .reg .pred q;
	ld.param.u64 a, [in]; ld.param.u64 b, [out];
	mov.u32 t, %tid.x;
	setp.gt.u32 q, t, 20;
	mad.wide.u32 a, t, 4, a;
	ld.global.u32 v, [a];
	mad.wide.u32 a, v, 4, a;
	mad.wide.u32 b, t, 8, b;
	mov.u32 t, 0;
	`+first+`
	ld.global.u32 v, [a+512];
	st.global.u32 [b], v;
	add.u64 a, a, 512;
	ld.global.u32 v, [a];
	st.global.u32 [b+4], v;
	ret;
}`)), "k")
			in, out := d.buffer(4*lanes*5), d.buffer(8*lanes)
			for i := range lanes {
				in.setWord(i, uint32(i%3))
			}
			for i := lanes; i < 5*lanes; i++ {
				in.setWord(i, uint32(i))
			}
			d.run(k, x(1), x(lanes), in, out)
			for i := range lanes {
				if want := uint32(i + i%3 + 2*lanes); out.word(2*i) != want || out.word(2*i+1) != want {
					t.Fatalf("thread %d loads %d and %d, want %d", i, out.word(2*i), out.word(2*i+1), want)
				}
			}
		})
	}
}

// Lanes that add to one word get its value after the lanes before them.
func TestAddToOnePlace(t *testing.T) {
	const lanes, blocks = 96, 5
	for _, at := range []string{"[p]", "[a]", "[a+0]"} {
		for _, guard := range []string{"", "@q "} {
			d := newDevice(t)
			k := d.kernel(d.load([]byte(`.version 7.0 .target sm_70 .address_size 64
.visible .entry k(.param .u64 sum, .param .u64 out) {
	.reg .u32 t, c, v, z; .reg .u64 a, b, p; .reg .pred q;
	ld.param.u64 p, [sum]; ld.param.u64 b, [out];
	mov.u32 t, %tid.x; mov.u32 c, %ctaid.x;
	and.b32 z, t, 4;
	setp.eq.u32 q, z, 4;
	and.b32 z, t, 128;
	mad.wide.u32 a, z, 4, p;
	mad.lo.u32 c, c, 96, t;
	mad.wide.u32 b, c, 4, b;
	mov.u32 v, 0;
	`+guard+"atom.global.add.u32 v, "+at+`, t;
	st.global.u32 [b], v;
	ret;
}`)), "k")
			sum, out := d.buffer(4), d.buffer(4*lanes*blocks)
			l := d.launch(k, x(blocks), x(lanes), sum, out)
			l.Cores = 1
			if f := k.Run(l); f != nil {
				t.Fatal(f)
			}
			each := uint32(0)
			for b := range blocks {
				each = 0
				start := out.word(b * lanes)
				if guard != "" {
					start = out.word(b*lanes + 4)
				}
				for i := range lanes {
					want := start + each
					if guard != "" && i&4 == 0 {
						want = 0
					} else {
						each += uint32(i)
					}
					if got := out.word(b*lanes + i); got != want {
						t.Fatalf("%s%s: block %d thread %d gets %d, want %d", guard, at, b, i, got, want)
					}
				}
			}
			if got := sum.word(0); got != blocks*each {
				t.Errorf("%s%s: sum %d, want %d", guard, at, got, blocks*each)
			}
		}
	}
}

// An index that one instruction sign-extends and another zero-extends gives two addresses.
func TestSignOfIndex(t *testing.T) {
	const lanes = 64
	for _, c := range []struct {
		first, second string
		illegal       bool
	}{{"s32", "s32", false}, {"s32", "u32", true}, {"u32", "s32", true}} {
		d := newDevice(t)
		k := d.kernel(d.load([]byte(`.version 7.0 .target sm_70 .address_size 64
.visible .entry k(.param .u64 in) {
	.reg .u32 c, i, v; .reg .u64 a, b, o, p;
	ld.param.u64 o, [in]; add.u64 p, o, 256;
	mov.u32 i, %tid.x; mov.u32 c, %ctaid.x; mul.lo.u32 c, c, 64; sub.u32 i, i, c; // negative in the second block
	mad.wide.`+c.first+` a, i, 4, p;
	ld.global.u32 v, [a];
	mad.wide.`+c.second+` b, i, 4, p;
	st.global.u32 [b], v;
	ret;
}`)), "k")
		l := d.launch(k, x(2), x(lanes), d.buffer(2*4*lanes))
		l.Cores = 1
		f := k.Run(l)
		if illegal := f != nil && f.Result == ptx.ErrIllegalAddress; illegal != c.illegal || f != nil && !illegal {
			t.Errorf("%s, then %s: %v", c.first, c.second, f)
		}
	}
}
