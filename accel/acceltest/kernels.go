package acceltest

import "encoding/binary"

func words64(all ...uint64) (b []byte) {
	for _, v := range all {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return b
}

// kernels is PTX with what the tests launch.
const kernels = `
.version 6.0
.target sm_50
.address_size 64

.visible .global .align 8 .u64 counter = 7;
.visible .const .align 4 .b8 table[12] = {1, 2, 3, 4};
.extern .shared .align 16 .b8 dynamic[];

// add: *to = *from + addend, by every thread for its own element.
.visible .entry add(.param .u64 to, .param .u64 from, .param .u32 addend)
{
	.reg .b32 %r<8>;
	.reg .b64 %rd<8>;
	ld.param.u64 %rd1, [to];
	ld.param.u64 %rd2, [from];
	ld.param.u32 %r1, [addend];
	mov.u32 %r2, %ctaid.x;
	mov.u32 %r3, %ntid.x;
	mov.u32 %r4, %tid.x;
	mad.lo.u32 %r5, %r2, %r3, %r4;
	mul.wide.u32 %rd3, %r5, 4;
	add.u64 %rd4, %rd1, %rd3;
	add.u64 %rd5, %rd2, %rd3;
	ld.global.u32 %r6, [%rd5];
	add.u32 %r7, %r6, %r1;
	st.global.u32 [%rd4], %r7;
	ret;
}

// spin: until the word is not 0.
.visible .entry spin(.param .u64 word)
{
	.reg .b32 %r<2>;
	.reg .b64 %rd<2>;
	.reg .pred %p<2>;
	ld.param.u64 %rd1, [word];
again:
	ld.volatile.global.u32 %r1, [%rd1];
	setp.eq.u32 %p1, %r1, 0;
	@%p1 bra again;
	ret;
}

// count: so many steps, then the number to an address.
.visible .entry count(.param .u64 to, .param .u32 steps)
{
	.reg .b32 %r<4>;
	.reg .b64 %rd<2>;
	.reg .pred %p<2>;
	ld.param.u64 %rd1, [to];
	ld.param.u32 %r1, [steps];
	mov.u32 %r2, 0;
more:
	add.u32 %r2, %r2, 1;
	setp.lt.u32 %p1, %r2, %r1;
	@%p1 bra more;
	st.global.u32 [%rd1], %r2;
	ret;
}

// shift: an element's value goes to dynamic shared memory and back, after it to the address.
.visible .entry shift(.param .u64 to, .param .u32 place)
{
	.reg .b32 %r<4>;
	.reg .b64 %rd<4>;
	ld.param.u64 %rd1, [to];
	ld.param.u32 %r1, [place];
	mov.u32 %r2, dynamic;
	add.u32 %r2, %r2, %r1;
	st.shared.u32 [%r2], %r1;
	ld.shared.u32 %r3, [%r2];
	st.global.u32 [%rd1], %r3;
	ret;
}

// bump: the counter goes up by the first byte of the table.
.visible .entry bump()
{
	.reg .b64 %rd<5>;
	.reg .b32 %r<2>;
	mov.u64 %rd1, counter;
	ld.global.u64 %rd2, [%rd1];
	mov.u64 %rd3, table;
	ld.const.u8 %r1, [%rd3];
	cvt.u64.u32 %rd4, %r1;
	add.u64 %rd2, %rd2, %rd4;
	st.global.u64 [%rd1], %rd2;
	ret;
}

// places: parameters of all sizes, with gaps; the sum to the address.
.visible .entry places(.param .u8 a, .param .u64 to, .param .u16 b, .param .align 16 .b8 c[20], .param .u32 d)
{
	.reg .b32 %r<8>;
	.reg .b64 %rd<2>;
	ld.param.u8 %r1, [a];
	ld.param.u64 %rd1, [to];
	ld.param.u16 %r2, [b];
	ld.param.u32 %r3, [c+16];
	ld.param.u32 %r4, [d];
	add.u32 %r5, %r1, %r2;
	add.u32 %r6, %r3, %r4;
	add.u32 %r7, %r5, %r6;
	st.global.u32 [%rd1], %r7;
	ret;
}

// fault: writes to an address.
.visible .entry fault(.param .u64 to)
{
	.reg .b32 %r<2>;
	.reg .b64 %rd<2>;
	ld.param.u64 %rd1, [to];
	mov.u32 %r1, 1;
	st.global.u32 [%rd1], %r1;
	ret;
}
`
