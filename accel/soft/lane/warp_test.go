package lane

import (
	"fmt"
	"testing"

	"pegasus/accel/soft/lane/internal/lanetest"
)

// A shfl with the same operands in all lanes has the same results as one executed lane by lane, for any threads that
// take part and in blocks of any size.
func TestShflAlike(t *testing.T) {
	const threads = 250
	r := lanetest.Random(11)
	for _, mode := range []string{"up", "down", "bfly", "idx"} {
		for range 20 {
			from, clamp, taking := r.IntN(32), r.IntN(32)|r.IntN(32)<<8, r.Uint32()
			if r.IntN(2) == 0 {
				taking = 0xffff << (r.IntN(4) * 8)
			}
			if r.IntN(2) == 0 {
				clamp = 31
			}
			src := fmt.Sprintf(`.version 6.0
.target sm_70
.address_size 64
.entry k(.param .u64 out) {
	.reg .pred %%p, %%q, %%z;
	.reg .b32 %%r<12>;
	.reg .b64 %%rd<4>;
	mov.u32 %%r1, %%tid.x;
	mad.lo.u32 %%r2, %%r1, 7, 1;
	mov.u32 %%r3, -1;
	mov.u32 %%r4, -1;
	mov.u32 %%r8, -1;
	mov.u32 %%r9, 2;
	mov.u32 %%r10, 2;
	and.b32 %%r5, %%r1, 31;
	shr.u32 %%r6, %#x, %%r5;
	and.b32 %%r6, %%r6, 1;
	setp.eq.u32 %%z, %%r6, 0;
	@%%z bra OUT;
	shfl.sync.%[2]s.b32 %%r3|%%p, %%r2, %[3]d, %[4]d, %[1]d;
	selp.u32 %%r9, 1, 0, %%p;
	sub.u32 %%r7, %%r1, %%r1;
	add.u32 %%r7, %%r7, %[3]d;
	shfl.sync.%[2]s.b32 %%r4|%%q, %%r2, %%r7, %[4]d, %[1]d;
	selp.u32 %%r10, 1, 0, %%q;
	shfl.sync.%[2]s.b32 %%r8, %%r2, %%r7, %[4]d, %[1]d;
OUT:
	ld.param.u64 %%rd1, [out];
	mul.wide.u32 %%rd2, %%r1, 32;
	add.u64 %%rd1, %%rd1, %%rd2;
	st.global.v4.u32 [%%rd1], {%%r3, %%r9, %%r4, %%r10};
	st.global.u32 [%%rd1+16], %%r8;
	ret;
}`, taking, mode, from, clamp)
			d := newDevice(t)
			out := d.buffer(32 * threads)
			d.run(d.kernel(d.load([]byte(src)), "k"), x(1), x(threads), out)
			for i := range threads {
				alike, apart := [2]uint32{out.word(8 * i), out.word(8*i + 1)}, [2]uint32{out.word(8*i + 2), out.word(8*i + 3)}
				if alike != apart || out.word(8*i+4) != apart[0] || taking>>(i%32)&1 != 0 == (alike[1] == 2) {
					t.Fatalf("shfl.%s %d, %#x, threads %#x: thread %d gets %v, and %v lane by lane, and %d without a predicate",
						mode, from, clamp, taking, i, alike, apart, out.word(8*i+4))
				}
			}
		}
	}
}

// A warp instruction doesn't wait for threads that wait for those that execute it, whether at a join, at a barrier, or
// at their end.
func TestWrongMask(t *testing.T) {
	const threads = 64
	for _, after := range []string{"", "bar.sync 0;", "@%p ret;", "@%p exit; bar.sync 0;"} {
		d := newDevice(t)
		out := d.buffer(4 * threads)
		d.run(d.kernel(d.load([]byte(`.version 6.0
.target sm_70
.address_size 64
.entry k(.param .u64 out) {
	.reg .pred %p;
	.reg .b32 %r<5>;
	.reg .b64 %rd<3>;
	mov.u32 %r1, %laneid;
	mov.u32 %r4, %tid.x;
	mov.u32 %r2, 0;
	setp.ge.u32 %p, %r1, 5;
	@%p bra OUT;
	vote.sync.ballot.b32 %r2, 1, -1;
	shfl.sync.idx.b32 %r2, %r2, 0, 31, -1;
	bar.warp.sync -1;
OUT:
	ld.param.u64 %rd1, [out];
	mul.wide.u32 %rd2, %r4, 4;
	add.u64 %rd1, %rd1, %rd2;
	st.global.u32 [%rd1], %r2;
	`+after+`
	add.u32 %r2, %r2, 1;
	st.global.u32 [%rd1], %r2;
	ret;
}`)), "k"), x(1), x(threads), out)
		for i := range threads {
			want := uint32(1)
			if i%32 < 5 {
				want = 0x1f + 1
			} else if after != "" && after[0] == '@' {
				want = 0
			}
			if got := out.word(i); got != want {
				t.Errorf("%q: thread %d has %x, want %x", after, i, got, want)
			}
		}
	}
}
