package lane

import (
	"fmt"
	"testing"

	"pegasus/accel/soft/lane/arith"
	"pegasus/accel/soft/lane/internal/lanetest"
)

// The first lane with a fault is the reported one, and lanes before it have stored.
func TestFaultingLanes(t *testing.T) {
	const lanes = 128
	for _, what := range []string{"ld.global.u32 v, [a+16];", "st.global.u32 [a+16], t;", "st.global.v2.u32 [a+16], {t, t};", "atom.global.add.u32 v, [a+16], 1;"} {
		t.Run(what, func(t *testing.T) {
			lanetest.EachLevel(t, &arith.VectorLevel, func(t *testing.T) {
				d := newDevice(t)
				k := d.kernel(d.load(fmt.Appendf(nil, `.version 7.0 .target sm_70 .address_size 64
.visible .entry k(.param .u64 memory, .param .u32 from, .param .u32 by) {
	.reg .u32 t, v, bad, with; .reg .u64 a, b; .reg .pred q;
	ld.param.u64 b, [memory]; ld.param.u32 bad, [from]; ld.param.u32 with, [by];
	mov.u32 t, %%tid.x;
	mad.wide.u32 a, t, 8, b;
	ld.global.u32 v, [a];
	setp.ge.u32 q, t, bad;
	selp.u32 v, with, 0, q;
	cvt.u64.u32 b, v;
	add.u64 a, a, b;
	%s
	ret;
}`, what)), "k")
				for bad := range lanes {
					for _, with := range []int{2, 1 << 20} {
						b := d.buffer(8*lanes + 16)
						f := k.Run(d.launch(k, x(1), x(lanes), b, bad, with))
						if f == nil || f.Thread[0] != uint32(bad) || f.Addr != b.addr+uint64(8*bad+16+with) || f.Line != 12 {
							t.Fatalf("thread %d goes wrong: %v", bad, f)
						}
						if what[0] != 's' {
							continue
						}
						for i := range lanes {
							if got := b.word(2*i + 4); i < bad && got != uint32(i) || i >= bad && got != 0 {
								t.Fatalf("thread %d went wrong: that of thread %d is %d", bad, i, got)
							}
						}
					}
				}
			})
		})
	}
}
