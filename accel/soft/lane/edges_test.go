package lane

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"pegasus/accel/ptx"
)

// All extern shared arrays begin at one address, aligned for the strictest,
// and the whole of the dynamic memory lies behind it.
func TestDynamicSharedAlignment(t *testing.T) {
	src := `.version 7.0
.target sm_75
.address_size 64
.extern .shared .align 128 .b8 wide[];
.extern .shared .align 4 .b8 narrow[];
.visible .entry k(.param .u64 out)
{ .reg .b64 %a<4>; .reg .b32 %r<4>; .shared .b8 few[5];
ld.param.u64 %a0, [out]; mov.u64 %a1, wide; mov.u64 %a2, narrow; mov.u32 %r1, 9; st.shared.u8 [few+4], %r1;
st.shared.u32 [%a1+252], %r1; ld.shared.u32 %r2, [%a2+252];
sub.u64 %a3, %a1, %a2; and.b64 %a1, %a1, 127; or.b64 %a3, %a3, %a1; cvt.u32.u64 %r3, %a3; add.u32 %r2, %r2, %r3;
st.global.u32 [%a0], %r2; ret; }`
	d := newDevice(t)
	k, out := d.kernel(d.load([]byte(src)), "k"), d.buffer(4)
	l := d.launch(k, x(1), x(1), out)
	l.SharedBytes = 256
	if f := k.Run(l); f != nil || out.word(0) != 9 {
		t.Fatal(f, out.word(0))
	}
}

// Old text: special registers read by halves, subnormal numbers flushed unasked.
func TestOldText(t *testing.T) {
	text := strings.NewReplacer("7.0", "1.4", "sm_75", "sm_13").Replace(string(entry(`
	.reg .b16 %h<4>;
	mov.u16 %h1, %ctaid.x; mov.u16 %h2, %ntid.x; mul.wide.u16 %r1, %h1, %h2; cvt.u32.u16 %r2, %tid.x; add.u32 %r1, %r1, %r2;
	mov.b32 %f1, 0x00000123; add.f32 %f1, %f1, 0f00000000; mov.b32 %r3, %f1; add.u32 %r1, %r1, %r3;
	mul.wide.u32 %a2, %r1, 4; add.u64 %a2, %a2, %o; st.global.u32 [%a2], %r1;`)))
	d := newDevice(t)
	out := d.buffer(4 * 120)
	d.run(d.kernel(d.load([]byte(text)), "k"), x(3), x(40), out, 0)
	for i := range 120 {
		if out.word(i) != uint32(i) {
			t.Fatalf("element %d: %#x", i, out.word(i))
		}
	}
}

// Older text still: declarations without an end, parameters in registers, debugging information.
func TestOlderText(t *testing.T) {
	text := strings.NewReplacer("7.0", "1.4", "sm_75", "sm_13").Replace(string(entry(`
	@@DWARF .byte 0x00, 0x01
	call (%r1), both, (%t, 5); setp.lt.u32 %p1, %t, 2; @%p1 call (%r2), early, (%t);
	@!%p1 mov.u32 %r2, 0;
	add.u32 %r1, %r1, %r2;
	mul.wide.u32 %a2, %t, 4; add.u64 %a2, %a2, %o; st.global.u32 [%a2], %r1;`)))
	text = strings.Replace(text, ".visible .entry", `
	@@DWARF .section .debug_info, "",@progbits
	@@DWARF .4byte .debug_abbrev
.visible .func (.reg .u32 sum) both (.reg .u32 a, .reg .u32 b)
.func (.param .u32 r) early (.reg .u32 a)
.func (.reg .u32 sum) both (.reg .u32 a, .reg .u32 b)
{ add.u32 sum, a, b; }
.func (.reg .u32 r) early (.reg .u32 a)
{ .reg .pred %p; setp.eq.u32 %p, a, 0; mov.u32 r, 100; @%p ret; mov.u32 r, 200; ret; }
.visible .entry`, 1)
	d := newDevice(t)
	out := d.buffer(4 * 4)
	d.run(d.kernel(d.load([]byte(text)), "k"), x(1), x(4), out, 0)
	for i, want := range []uint32{105, 206, 7, 8} {
		if out.word(i) != want {
			t.Errorf("element %d: %d, not %d", i, out.word(i), want)
		}
	}
}

// Functions take and return vectors of registers.
func TestVectorParameters(t *testing.T) {
	text := strings.Replace(string(entry(`
	.reg .v2 .u32 %v; mov.u32 %v.x, %t; mov.u32 %v.y, 40;
	call (%v), turned, (%v, 2);
	call ({%r1, _}), turned, ({7, %t}, 100);
	mul.wide.u32 %a2, %t, 12; add.u64 %a2, %a2, %o; st.global.u32 [%a2], %v.x; st.global.u32 [%a2+4], %v.y; st.global.u32 [%a2+8], %r1;`)),
		".visible .entry", `
.func (.reg .v2 .u32 out) turned (.reg .v2 .u32 in, .reg .u32 more)
{ add.u32 out.x, in.y, more; mov.u32 out.y, in.x; ret; }
.visible .entry`, 1)
	d := newDevice(t)
	out := d.buffer(4 * 12)
	d.run(d.kernel(d.load([]byte(text)), "k"), x(1), x(4), out, 0)
	for i := range 4 {
		for k, want := range []uint32{42, uint32(i), 100 + uint32(i)} {
			if out.word(3*i+k) != want {
				t.Errorf("thread %d: word %d is %d, not %d", i, k, out.word(3*i+k), want)
			}
		}
	}
}

// Blocks take tickets and wait for their turn; each holder may be a block that
// runs beside or ran before.
func TestTicketLockBetweenBlocks(t *testing.T) {
	d := newDevice(t)
	out := d.buffer(12)
	im := d.load(entry(`
	setp.ne.u32 %p1, %t, 0; @%p1 bra end;
	atom.global.add.u32 %r1, [%o], 1;
wait:	ld.volatile.global.u32 %r2, [%o+4]; setp.ne.u32 %p2, %r2, %r1; @%p2 bra wait;
	ld.volatile.global.u32 %r3, [%o+8]; add.u32 %r3, %r3, 1; st.volatile.global.u32 [%o+8], %r3;
	membar.gl; atom.global.add.u32 %r4, [%o+4], 1;
end:	bar.sync 0;`))
	k := d.kernel(im, "k")
	for _, cores := range []int{1, 2} {
		clear(out.mem)
		l := d.launch(k, x(50), x(70), out, 0)
		l.Cores = cores
		if f := k.Run(l); f != nil || out.word(2) != 50 {
			t.Fatalf("%d cores: %v, %d blocks had the lock", cores, f, out.word(2))
		}
	}
}

// Three dimensions, blocks that are no multiple of a warp or a group, and barriers.
func TestOddShapes(t *testing.T) {
	for _, block := range [][3]uint32{{1, 1, 1}, {3, 5, 7}, {17, 3, 20}, {1024, 1, 1}, {31, 33, 1}, {1, 1, 64}} {
		d := newDevice(t)
		grid := [3]uint32{2, 3, 2}
		n := int(block[0] * block[1] * block[2])
		out := d.buffer(4 * n * 12)
		d.run(d.kernel(d.load(entry(`
	mov.u32 %r1, %tid.z; mov.u32 %r2, %ntid.y; mov.u32 %r3, %tid.y; mad.lo.u32 %r1, %r1, %r2, %r3; mov.u32 %r2, %ntid.x; mad.lo.u32 %r1, %r1, %r2, %t;
	mov.u32 %r4, %ntid.x; mov.u32 %r5, %ntid.y; mul.lo.u32 %r4, %r4, %r5; mov.u32 %r5, %ntid.z; mul.lo.u32 %r4, %r4, %r5;
	mov.u32 %r6, %ctaid.z; mov.u32 %r7, %nctaid.y; mov.u32 %r8, %ctaid.y; mad.lo.u32 %r6, %r6, %r7, %r8; mov.u32 %r7, %nctaid.x; mov.u32 %r8, %ctaid.x; mad.lo.u32 %r6, %r6, %r7, %r8;
	mul.wide.u32 %a2, %r1, 4; mov.u64 %a3, s; add.u64 %a2, %a2, %a3; st.shared.u32 [%a2], %r1; bar.sync 0;
	sub.u32 %r9, %r4, %r1; sub.u32 %r9, %r9, 1; mul.wide.u32 %a2, %r9, 4; add.u64 %a2, %a2, %a3; ld.shared.u32 %r10, [%a2];
	mad.lo.u32 %r11, %r6, %r4, %r1; mul.wide.u32 %a2, %r11, 4; add.u64 %a2, %a2, %o; st.global.u32 [%a2], %r10;`)), "k"), grid, block, out, 0)
		for i := range 12 * n {
			if int(out.word(i)) != n-1-i%n {
				t.Fatalf("block %v: element %d is %d", block, i, out.word(i))
			}
		}
	}
}

// Addresses at the edges of the windows of the generic space fault and touch nothing.
func TestWindows(t *testing.T) {
	for _, c := range []struct {
		addr string
		ok   bool
	}{
		{"0x1000000000000", true}, {"0x1000000000ffc", true}, {"0x1000000001000", false}, {"0x1ffffffffffff", false}, {"0x1fffffffffffc", false},
		{"0x2000000000000", true}, {"0x200000000000c", true}, {"0x2000000000010", false}, {"0x2fffffffffffc", false},
		{"0x3000000000000", true}, {"0x3000000000008", true}, {"0x300000000000c", false}, {"0x3fffffffffffc", false},
		{"0x4000000000000", false}, {"0xfffffffffffffffc", false}, {"0xfffc", false}, {"0x8000000000000000", false},
	} {
		d := newDevice(t)
		k := d.kernel(d.load(entry(".local .align 4 .b8 m[16]; mov.u64 %a3, m; st.local.u32 [%a3], 1; mov.u64 %a3, "+c.addr+"; ld.u32 %r1, [%a3];")), "k")
		l := d.launch(k, x(1), x(40), d.buffer(160), 0)
		l.Params = append(l.Params, bytes.Repeat([]byte{0xee}, 64)...)
		if f := k.Run(l); (f == nil) != c.ok {
			t.Errorf("%s: %v", c.addr, f)
		}
	}
}

// For all coordinates and handles, a kernel reads elements or faults.
func TestTextureEdges(t *testing.T) {
	coordinates := []uint32{0, 0x3f000000, 0x7f800000, 0xff800000, 0x7fc00000, 0x7f7fffff, 0xff7fffff, 0x4f000000, 0xcf000000, 0x7fffffff, 0x80000000, 0xffffffff, 0x00000001, 0x4b800000}
	for mode := range 1 << 5 {
		for _, format := range []Format{U8, S8, U16, F32} {
			tex := &Texture{Width: 5, Height: mode >> 4 * 3, PitchBytes: 64, Format: format, Channels: 1 + mode%4, Linear: mode&1 != 0, Normalized: mode&2 != 0, ReadFloat: mode&4 != 0 && format != F32}
			tex.Address[0], tex.Address[1] = AddressMode(mode&3), AddressMode(mode>>2&3)
			tex.Data = make([]byte, 2*64+5*16)
			tex.Border[0] = float32(math.NaN())
			for _, kind := range []string{"f32", "s32"} {
				d := newDevice(t)
				in := d.buffer(4 * len(coordinates))
				for i, v := range coordinates {
					in.setWord(i, v)
				}
				k := d.kernel(d.load(entry("mov.u64 %a3, 5; ld.global.b32 %r1, [%a0]; sub.u32 %r2, 13, %t; mul.wide.u32 %a4, %r2, 4; add.u64 %a4, %a4, %o; ld.global.b32 %r2, [%a4];"+
					"tex.2d.v4.f32."+kind+" {%f1, %f2, %f3, %f4}, [%a3, {%r1, %r2}]; tex.1d.v4.f32."+kind+" {%f1, %f2, %f3, %f4}, [%a3, {%r1}];")), "k")
				l := d.launch(k, x(1), x(len(coordinates)), in, 0)
				l.Texture = func(h uint64) *Texture { return tex }
				if f := k.Run(l); f != nil {
					t.Fatal(f)
				}
				for _, bad := range []*Texture{nil, {}, {Width: 5, Height: 3, PitchBytes: 64, Format: U8, Channels: 1}, {Data: tex.Data, Height: 1, Format: U8, Channels: 1}, {Data: tex.Data, Width: 1 << 40, Format: U8, Channels: 1}} {
					l.Texture = func(uint64) *Texture { return bad }
					if f := k.Run(l); f == nil || f.Result != ptx.ErrIllegalAddress {
						t.Fatalf("texture %+v: %v", bad, f)
					}
				}
			}
		}
	}
}

// Threads that end early, meet at barriers from different places, enter loops in
// the middle and leave them in several ways.
func TestUnstructuredFlow(t *testing.T) {
	got := words(t, 300, `
	and.b32 %r1, %t, 3; setp.eq.u32 %p1, %r1, 0; setp.eq.u32 %p2, %r1, 1; setp.eq.u32 %p3, %r1, 2;
	mov.u32 %r9, 0;
	@%p1 bra A; @%p2 bra B; @%p3 bra C;
	bar.sync 0; add.u32 %r9, %r9, 1; bra J;
A:	st.global.u32 [%a0], 77; exit;
B:	add.u32 %r9, %r9, 2; bar.sync 0; bra J;
C:	add.u32 %r9, %r9, 4; bar.sync 0;
J:	activemask.b32 %r2; bar.sync 1; shl.b32 %r9, %r9, 4; st.global.u32 [%a0], %r9;`)
	for i, v := range got {
		want := []uint32{77, 2 << 4, 4 << 4, 1 << 4}[i&3]
		if v != want {
			t.Fatal(i, v, want)
		}
	}
	got = words(t, 100, `
	mov.u32 %r1, 0; mov.u32 %r2, 0; and.b32 %r3, %t, 1; setp.eq.u32 %p1, %r3, 1; @%p1 bra mid;
top:	add.u32 %r2, %r2, 1;
mid:	add.u32 %r1, %r1, 1; add.u32 %r2, %r2, 10;
	setp.gt.u32 %p2, %r1, %t; @%p2 bra out;
	and.b32 %r4, %r1, 2; setp.eq.u32 %p3, %r4, 0; @%p3 bra top;
	setp.gt.u32 %p4, %r1, 50; @%p4 bra fin;
	bra mid;
out:	bar.sync 0; st.global.u32 [%a0], %r2; ret;
fin:	bar.sync 0; st.global.u32 [%a0], 5;`)
	for i, v := range got {
		r1, r2 := 0, 0
		mid := i&1 == 1
		var want int
		for {
			if !mid {
				r2++
			}
			r1++
			r2 += 10
			if r1 > i {
				want = r2
				break
			}
			if r1&2 == 0 {
				mid = false
				continue
			}
			if r1 > 50 {
				want = 5
				break
			}
			mid = true
		}
		if int(v) != want {
			t.Fatal(i, v, want)
		}
	}
}

// An access to unmapped memory ends the launch, on any core, by a panic that the caller of Run can recover.
func TestMachineFault(t *testing.T) {
	d := newDevice(t)
	gone, err := unix.Mmap(-1, 0, 4096, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(gone)
	b := buffer{d.next, gone}
	d.bufs = append(d.bufs, b)
	d.next += 1 << 20
	k := d.kernel(d.load(entry("st.global.u32 [%a0], 1;")), "k")
	l := d.launch(k, x(1000), x(32), b, 0)
	l.Cores = 4
	defer func() {
		if p, ok := recover().(interface{ Addr() uintptr }); !ok || p.Addr() == 0 {
			t.Fatalf("recovered %v", p)
		}
	}()
	k.Run(l)
	t.Fatal("no fault")
}
