package lane

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"pegasus/accel/ptx"
)

// entry wraps a body that finds in %a0 the address of its 32-bit element of
// out, in %o out itself and in %t the thread's number.
func entry(body string) []byte {
	return []byte(`.version 7.0
.target sm_75
.address_size 64
.global .align 4 .u32 lock, lock2;
.visible .entry k(.param .u64 out, .param .u32 n)
{
.reg .pred %p<8>; .reg .b32 %r<32>; .reg .b64 %a<16>; .reg .b64 %o; .reg .b32 %t; .reg .f32 %f<8>;
.shared .align 8 .b8 s[4096];
ld.param.u64 %o, [out]; mov.u32 %t, %tid.x; mul.wide.u32 %a1, %t, 4; add.u64 %a0, %o, %a1;
` + body + `
ret;
}
`)
}

// words runs a body and returns the values that the threads stored.
func words(t *testing.T, threads int, body string) []uint32 {
	t.Helper()
	d := newDevice(t)
	out := d.buffer(4 * threads)
	d.run(d.kernel(d.load(entry(body)), "k"), x(1), x(threads), out, threads)
	r := make([]uint32, threads)
	for i := range r {
		r[i] = out.word(i)
	}
	return r
}

func expect(t *testing.T, got []uint32, want func(i int) uint32) {
	t.Helper()
	for i, v := range got {
		if v != want(i) {
			t.Fatalf("thread %d: %#x, want %#x", i, v, want(i))
		}
	}
}

// Each thread leaves the loop after a different number of iterations, and all meet
// again for the ballot.
func TestDivergentLoop(t *testing.T) {
	got := words(t, 300, `
	mov.u32 %r1, 0; mov.u32 %r2, 0;
loop:	add.u32 %r2, %r2, %r1;
	add.u32 %r1, %r1, 1;
	setp.le.u32 %p1, %r1, %t;
	@%p1 bra loop;
	activemask.b32 %r3;
	popc.b32 %r3, %r3;
	mad.lo.u32 %r2, %r3, 0x1000000, %r2;
	st.global.u32 [%a0], %r2;`)
	expect(t, got, func(i int) uint32 {
		lanes := uint32(32)
		if i >= 288 {
			lanes = 12
		}
		return uint32(i*(i+1)/2) + lanes<<24
	})
}

// The last steps of many old reductions depend on warps running in lockstep.
func TestWarpSynchronousReduction(t *testing.T) {
	body := `
	mov.u64 %a2, s; add.u64 %a2, %a2, %a1; add.u32 %r1, %t, 1; st.shared.u32 [%a2], %r1; bar.sync 0;
	setp.ge.u32 %p1, %t, 32; @%p1 bra out;`
	for _, off := range []string{"128", "64", "32", "16", "8", "4"} {
		body += "ld.volatile.shared.u32 %r2, [%a2+" + off + "]; ld.volatile.shared.u32 %r1, [%a2]; add.u32 %r1, %r1, %r2; st.volatile.shared.u32 [%a2], %r1;\n"
	}
	got := words(t, 64, body+"out: ld.shared.u32 %r3, [s]; st.global.u32 [%a0], %r3;")
	if got[0] != 64*65/2 {
		t.Fatalf("sum %d, want %d", got[0], 64*65/2)
	}
}

// A lock taken by the threads of a warp one after the other: the winner waits at the end of the loop for the threads
// that wait for the release.
func TestSpinLockWithinWarp(t *testing.T) {
	d := newDevice(t)
	out := d.buffer(4)
	im := d.load(entry(`
	mov.u64 %a2, lock;
again:	atom.global.cas.b32 %r1, [%a2], 0, 1;
	setp.ne.u32 %p1, %r1, 0;
	@%p1 bra again;
	ld.volatile.global.u32 %r2, [%o]; add.u32 %r2, %r2, 1; st.volatile.global.u32 [%o], %r2;
	membar.gl;
	atom.global.exch.b32 %r1, [%a2], 0;`))
	d.run(d.kernel(im, "k"), x(3), x(40), out, 0)
	if out.word(0) != 120 {
		t.Fatalf("%d threads had the lock, want 120", out.word(0))
	}
}

// critical is a spin lock, taken and released: inside adds n to a counter that nothing else protects.
func critical(label, lock, counter string, n int, inside string) string {
	return fmt.Sprintf(`
%[1]s:	atom.global.cas.b32 %%r1, [%[2]s], 0, 1; setp.ne.u32 %%p1, %%r1, 0; @%%p1 bra %[1]s;
	%[5]s
	ld.volatile.global.u32 %%r2, [%%o+%[3]s]; add.u32 %%r2, %%r2, %[4]d; st.volatile.global.u32 [%%o+%[3]s], %%r2;
	membar.gl; atom.global.exch.b32 %%r1, [%[2]s], 0;`, label, lock, counter, n, inside)
}

// Locks taken in several places: the holder of one waits at a join while threads spin in more than one loop, so that
// none of them is ever the only one that can go on.
func TestSpinLocksInSeveralPlaces(t *testing.T) {
	three := func(a, b, c string) string {
		return `
	rem.u32 %r3, %t, 3; setp.eq.u32 %p2, %r3, 1; @%p2 bra one; setp.eq.u32 %p2, %r3, 2; @%p2 bra two;` +
			a + "bra.uni end;\none:" + b + "bra.uni end;\ntwo:" + c + "\nend:"
	}
	lock := func(label string, n int) string { return critical(label, "lock", "0", n, "") }
	for _, c := range []struct {
		name, body string
		want       [2]uint32 // with 96 threads a block
	}{
		{"two", "and.b32 %r3, %t, 1; setp.ne.u32 %p2, %r3, 0; @%p2 bra odd;" + lock("A", 2) + "bra.uni end;\nodd:" + lock("B", 1) + "\nend:", [2]uint32{144, 0}},
		{"three", three(lock("A", 1), lock("B", 2), lock("C", 3)), [2]uint32{192, 0}},
		{"nested", three(
			critical("A", "lock", "0", 1, critical("AA", "lock2", "4", 1, "")),
			critical("B", "lock", "0", 2, critical("BB", "lock2", "4", 2, "")),
			critical("C", "lock2", "4", 3, "")), [2]uint32{96, 192}},
		{"in a loop", "mov.u32 %r4, 0;\nagain:" + three(lock("A", 1), lock("B", 2), lock("C", 3)) +
			"add.u32 %r4, %r4, 1; setp.le.u32 %p3, %r4, %r3; @%p3 bra again;", [2]uint32{32*1*1 + 32*2*2 + 32*3*3, 0}},
		{"with barriers", "mov.u32 %r4, 0;\nagain:" + three(lock("A", 1), lock("B", 2), lock("C", 3)) +
			"bar.sync 0; add.u32 %r4, %r4, 1; setp.lt.u32 %p3, %r4, 5; @%p3 bra again;", [2]uint32{5 * 192, 0}},
		// The thread that waits for the flag polls it under the lock; another thread waits for it to see the flag.
		{"polled under a lock", `
	setp.ge.u32 %p2, %t, 2; @%p2 bra poll;
	setp.eq.u32 %p3, %t, 0; @%p3 bra set;
seen:	ld.volatile.global.u32 %r3, [%o+4]; setp.lt.u32 %p3, %r3, 94; @%p3 bra seen;
set:	mov.u32 %r3, 1; st.volatile.shared.u32 [s], %r3; bra.uni end;
poll:	` + critical("A", "lock", "0", 0, "ld.volatile.shared.u32 %r5, [s];") + `
	setp.eq.u32 %p3, %r5, 0; @%p3 bra poll;
	atom.global.add.u32 %r6, [%o+4], 1;
end:`, [2]uint32{0, 94}},
		{"polled by adding nothing", `
	setp.ge.u32 %p2, %t, 64; @%p2 bra poll;
	setp.lt.u32 %p3, %t, 32; @%p3 bra set;
seen:	atom.global.add.u32 %r3, [%o+4], 0; setp.lt.u32 %p3, %r3, 32; @%p3 bra seen;
set:	atom.shared.or.b32 %r3, [s], 1; bra.uni end;
poll:	atom.shared.or.b32 %r3, [s], 0; setp.eq.u32 %p3, %r3, 0; @%p3 bra poll;
	atom.global.add.u32 %r6, [%o+4], 1;
end:`, [2]uint32{0, 32}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newDevice(t)
			out := d.buffer(4 * 96)
			k := d.kernel(d.load(entry(c.body)), "k")
			l := d.launch(k, x(1), x(96), out, 0)
			defer time.AfterFunc(time.Minute, func() { l.Cancel.Store(true) }).Stop()
			if f := k.Run(l); f != nil {
				t.Fatal(f)
			}
			if got := [2]uint32{out.word(0), out.word(1)}; got != c.want {
				t.Errorf("counted %v, want %v", got, c.want)
			}
		})
	}
}

// Threads that part and meet again in each iteration of a long loop stay together: no thread waits for long.
func TestLongLoopStaysConverged(t *testing.T) {
	got := words(t, 64, `
	mov.u32 %r1, 0; mov.u32 %r2, 0; and.b32 %r3, %t, 1; setp.ne.u32 %p2, %r3, 0;
loop:	@%p2 bra odd;
	add.u32 %r2, %r2, 1; bra.uni meet;
odd:	add.u32 %r2, %r2, 2;
meet:	activemask.b32 %r4; setp.ne.u32 %p1, %r4, -1; @%p1 bra end;
	add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 300000; @%p1 bra loop;
end:	st.global.u32 [%a0], %r1;`)
	expect(t, got, func(int) uint32 { return 300000 })
}

// One half of the block waits for a flag that the other half sets.
func TestSpinBetweenWarps(t *testing.T) {
	got := words(t, 512, `
	setp.ge.u32 %p1, %t, 256; @%p1 bra set;
wait:	ld.volatile.shared.u32 %r1, [s]; setp.eq.u32 %p2, %r1, 0; @%p2 bra wait;
	bra.uni end;
set:	mov.u32 %r1, 7; st.volatile.shared.u32 [s], %r1;
end:	st.global.u32 [%a0], %r1;`)
	expect(t, got, func(int) uint32 { return 7 })
}

func TestBarriers(t *testing.T) {
	// Threads that have ended are not awaited; the counted barrier pairs producer and consumer.
	got := words(t, 320, `
	setp.ge.u32 %p1, %t, 300; @%p1 exit;
	bar.sync 0;
	setp.ge.u32 %p2, %t, 64; @%p2 bra rest;
	setp.ge.u32 %p3, %t, 32; @%p3 bra consume;
	mov.u32 %r1, 5; st.shared.u32 [s], %r1; bar.arrive 1, 64; bra.uni rest;
consume: bar.sync 1, 64; ld.shared.u32 %r2, [s]; st.global.u32 [%a0], %r2;
rest:	and.b32 %r3, %t, 1; setp.eq.u32 %p4, %r3, 0;
	bar.red.popc.u32 %r4, 2, %p4;
	setp.ge.u32 %p3, %t, 64; @%p3 st.global.u32 [%a0], %r4;
	bar.red.and.pred %p5, 3, %p4; bar.red.or.pred %p6, 3, %p4;
	selp.u32 %r5, 1, 0, %p5; selp.u32 %r6, 2, 0, %p6; add.u32 %r5, %r5, %r6;
	setp.lt.u32 %p3, %t, 32; @%p3 st.global.u32 [%a0], %r5;`)
	expect(t, got, func(i int) uint32 {
		switch {
		case i < 32:
			return 2
		case i < 64:
			return 5
		case i < 300:
			return 150
		}
		return 0
	})
}

func TestShuffleAndVote(t *testing.T) {
	got := words(t, 64, `
	shfl.sync.down.b32 %r1|%p1, %t, 1, 31, -1;
	shfl.sync.bfly.b32 %r2, %t, 3, 31, -1;
	shfl.sync.idx.b32 %r3, %t, 2, 0x181f, -1;
	shfl.sync.up.b32 %r4, %t, 1, 0, -1;
	selp.u32 %r5, 1, 0, %p1;
	shl.b32 %r2, %r2, 8; shl.b32 %r3, %r3, 16; shl.b32 %r4, %r4, 24;
	or.b32 %r1, %r1, %r2; or.b32 %r1, %r1, %r3; or.b32 %r1, %r1, %r4;
	shl.b32 %r5, %r5, 7; or.b32 %r1, %r1, %r5;
	st.global.u32 [%a0], %r1;`)
	expect(t, got, func(i int) uint32 {
		lane, warp := i%32, i&^31
		down, in := i, 0
		if lane < 31 {
			down, in = i+1, 1
		}
		up := i
		if lane > 0 {
			up = i - 1
		}
		return uint32(down | in<<7 | (i^3)<<8 | (warp+lane&^7+2)<<16 | up<<24)
	})
	got = words(t, 40, `
	setp.lt.u32 %p1, %t, 35; and.b32 %r1, %t, 1; setp.eq.u32 %p2, %r1, 0;
	vote.ballot.b32 %r1, %p2; vote.all.pred %p3, %p1; vote.any.pred %p4, %p1;
	selp.u32 %r2, 1, 0, %p3; selp.u32 %r3, 2, 0, %p4; or.b32 %r2, %r2, %r3; xor.b32 %r1, %r1, %r2;
	st.global.u32 [%a0], %r1;`)
	expect(t, got, func(i int) uint32 {
		if i < 32 {
			return 0x55555555 ^ 3
		}
		return 0x55 ^ 2
	})
}

func TestMemorySpaces(t *testing.T) {
	got := words(t, 50, `
	.local .align 8 .b8 mine[16];
	mov.u64 %a2, mine; cvta.local.u64 %a3, %a2; isspacep.local %p1, %a3;
	st.u32 [%a3+4], %t; ld.local.u32 %r1, [%a2+4];
	mov.u64 %a4, s; cvta.shared.u64 %a5, %a4; isspacep.shared %p2, %a5; add.u64 %a6, %a5, %a1; st.u32 [%a6], %r1;
	bar.sync 0; sub.u32 %r2, 49, %t; mul.wide.u32 %a7, %r2, 4; add.u64 %a7, %a7, %a4; ld.shared.u32 %r3, [%a7];
	isspacep.global %p3, %o;
	selp.u32 %r4, 0x100, 0, %p1; selp.u32 %r5, 0x200, 0, %p2; selp.u32 %r6, 0x400, 0, %p3;
	or.b32 %r3, %r3, %r4; or.b32 %r3, %r3, %r5; or.b32 %r3, %r3, %r6;
	st.global.u32 [%a0], %r3;`)
	expect(t, got, func(i int) uint32 { return uint32(49-i) | 0x700 })
}

func TestLaneMasks(t *testing.T) {
	got := words(t, 40, `
	mov.u32 %r1, %lanemask_lt; mov.u32 %r2, %lanemask_le; mov.u32 %r3, %lanemask_gt; mov.u32 %r4, %lanemask_ge; mov.u32 %r5, %lanemask_eq;
	xor.b32 %r6, %r1, %r2; xor.b32 %r7, %r3, %r4; xor.b32 %r6, %r6, %r7; xor.b32 %r6, %r6, %r5;
	mov.u32 %r8, %laneid; shl.b32 %r9, %r8, 8; xor.b32 %r6, %r6, %r9; add.u32 %r6, %r6, %r2;
	st.global.u32 [%a0], %r6;`)
	expect(t, got, func(i int) uint32 {
		lane := i % 32
		bit := uint32(1) << lane
		return (bit ^ uint32(lane)<<8) + (bit<<1 - 1)
	})
}

// After sub.cc the condition code means "no borrow" to addc.
func TestCarryChain(t *testing.T) {
	got := words(t, 33, `
	add.cc.u32 %r1, 0xffffffff, 2; addc.u32 %r2, 5, 0;
	sub.cc.u32 %r3, 1, 2; subc.u32 %r4, 5, 0; sub.cc.u32 %r5, 2, 1; addc.u32 %r6, 0, 0;
	mad.lo.cc.u32 %r7, 0x10000, 0x10000, 1; madc.hi.u32 %r7, 0x10000, 0x10000, 0;
	shl.b32 %r2, %r2, 4; shl.b32 %r4, %r4, 8; shl.b32 %r6, %r6, 12; shl.b32 %r7, %r7, 16;
	or.b32 %r1, %r1, %r2; or.b32 %r1, %r1, %r4; or.b32 %r1, %r1, %r6; or.b32 %r1, %r1, %r7;
	st.global.u32 [%a0], %r1;`)
	expect(t, got, func(int) uint32 { return 1 | 6<<4 | 4<<8 | 1<<12 | 1<<16 })
}

func TestCallsAndVectors(t *testing.T) {
	src := strings.Replace(string(entry(`
	{ .param .b32 p0; st.param.b32 [p0], %t; .param .align 4 .b8 back[8];
	call.uni (back), twice, (p0);
	ld.param.v2.b32 {%r1, %r2}, [back]; }
	shl.b32 %r2, %r2, 16; or.b32 %r1, %r1, %r2; st.global.u32 [%a0], %r1;`)), ".visible .entry", `
.func (.param .align 4 .b8 ret[8]) twice(.param .b32 x)
{ .reg .b32 %r<4>; .reg .pred %p; ld.param.u32 %r1, [x]; add.u32 %r2, %r1, %r1; setp.gt.u32 %p, %r1, 3; st.param.b32 [ret], %r2; st.param.b32 [ret+4], 9; @%p ret; st.param.b32 [ret+4], 1; ret; }
.visible .entry`, 1)
	src = strings.Replace(src, "ld.param.v2.b32 {%r1, %r2}, [back]", "ld.param.b32 %r1, [back]; ld.param.b32 %r2, [back+4]", 1)
	d := newDevice(t)
	out := d.buffer(4 * 20)
	d.run(d.kernel(d.load([]byte(src)), "k"), x(1), x(20), out, 0)
	for i := range 20 {
		want := uint32(2*i) | 1<<16
		if i > 3 {
			want = uint32(2*i) | 9<<16
		}
		if out.word(i) != want {
			t.Fatalf("thread %d: %#x, want %#x", i, out.word(i), want)
		}
	}
}

func TestFaults(t *testing.T) {
	for _, c := range []struct {
		name, body string
		result     int32
		thread     uint32
		line       int
	}{
		{"beyond", "setp.eq.u32 %p1, %t, 33;\n@%p1 st.global.u32 [%a0+0x8000], %t;", ptx.ErrIllegalAddress, 33, 11},
		{"null", "mov.u64 %a3, 0;\nld.global.u32 %r1, [%a3];", ptx.ErrIllegalAddress, 0, 11},
		{"wrap", "mov.u64 %a3, -4;\nld.global.u64 %a4, [%a3];", ptx.ErrIllegalAddress, 0, 11},
		{"misaligned", "ld.global.u32 %r1, [%a0+2];", ptx.ErrMisalignedAddress, 0, 10},
		{"shared", "mov.u64 %a3, s;\nld.shared.u32 %r1, [%a3+4096];", ptx.ErrIllegalAddress, 0, 11},
		{"space", "mov.u64 %a3, s; cvta.shared.u64 %a3, %a3;\nst.global.u32 [%a3], 1;", ptx.ErrInvalidAddressSpace, 0, 11},
		{"atomic", ".local .b32 own; mov.u64 %a3, own; cvta.local.u64 %a3, %a3;\natom.add.u32 %r1, [%a3], 1;", ptx.ErrInvalidAddressSpace, 0, 11},
		{"trap", "setp.eq.u32 %p1, %t, 5;\n@%p1 trap;", ptx.ErrLaunchFailed, 5, 11},
		{"deadlock", "setp.lt.u32 %p1, %t, 32; @%p1 bar.sync 1;\nbar.sync 2, 96;", ptx.ErrLaunchFailed, 0, 0},
	} {
		d := newDevice(t)
		out := d.buffer(4 * 64)
		f := d.kernel(d.load(entry(c.body)), "k").Run(d.launch(d.kernel(d.load(entry(c.body)), "k"), x(1), x(64), out, 0))
		if f == nil {
			t.Errorf("%s: no fault", c.name)
			continue
		}
		if f.Result != c.result || f.Thread[0] != c.thread || c.line != 0 && f.Line != c.line || f.Kernel != "k" {
			t.Errorf("%s: %+v, want result %d of thread %d at line %d", c.name, *f, c.result, c.thread, c.line)
		}
	}
}

// Kernels without an end stop when they are cancelled, whatever their threads do.
func TestCancel(t *testing.T) {
	for name, body := range map[string]string{
		"straight":  "loop: add.u32 %r1, %r1, 1; bra loop;",
		"divergent": "loop: add.u32 %r1, %r1, 1; and.b32 %r2, %r1, %t; setp.eq.u32 %p1, %r2, 0; @%p1 bra even; add.u32 %r3, %r3, 1; even: bra loop;",
		"waiting":   "loop: ld.volatile.shared.u32 %r1, [s]; setp.eq.u32 %p1, %r1, 0; @%p1 bra loop;",
		"barrier":   "loop: bar.sync 0; bra loop;",
		"exits":     "setp.eq.u32 %p1, %t, 5; loop: @%p1 exit; bra.uni loop;",
		"long":      "loop: " + strings.Repeat("add.u32 %r1, %r1, %t; ", 100_000) + "bra loop;",
		"dear":      ".reg .f64 %d<4>; cvt.rn.f64.u32 %d1, %t; loop: " + strings.Repeat("div.rp.f64 %d2, %d1, 0d7fe123456789abcd; ", 1000) + "bra loop;",
		"crossing":  "loop: add.u32 %r1, %r1, 1; and.b32 %r2, %r1, %t; setp.eq.u32 %p1, %r2, 0; @%p1 bra loop; setp.eq.u32 %p2, %r2, 1; @%p2 bra loop; bra loop;",
		"lock":      "loop: atom.shared.cas.b32 %r1, [s], 0, 1; setp.ne.u32 %p1, %r1, 0; @%p1 bra loop; bar.sync 0; bra loop;",
	} {
		d := newDevice(t)
		k := d.kernel(d.load(entry(body)), "k")
		l := d.launch(k, x(2), x(300), d.buffer(4096), 0)
		l.Cancel = new(atomic.Bool)
		if err := k.Compile(); err != nil {
			t.Fatal(err)
		}
		var since time.Time
		time.AfterFunc(5*time.Millisecond, func() { since = time.Now(); l.Cancel.Store(true) })
		f := k.Run(l)
		if f == nil || f.Result != ptx.ErrLaunchTimeout {
			t.Errorf("%s: %v", name, f)
		} else if late := time.Since(since); late > 10*time.Second {
			t.Errorf("%s: ended %v after it was cancelled", name, late)
		}
	}
}

func TestVariables(t *testing.T) {
	src := `.version 7.0
.target sm_75
.address_size 64
.global .align 4 .u32 table[4] = {1, 2, 0x30, 077};
.const .align 8 .u64 where[2] = {generic(table)+8, table};
.extern .shared .align 16 .b8 dyn[];
.visible .entry k(.param .u64 out)
{ .reg .b64 %a<4>; .reg .b32 %r<4>; ld.param.u64 %a0, [out]; ld.const.u64 %a1, [where]; ld.u32 %r1, [%a1]; ld.global.u32 %r2, [table+12];
st.shared.u32 [dyn+60], %r2; ld.shared.u32 %r3, [dyn+60]; add.u32 %r1, %r1, %r3; st.global.u32 [%a0], %r1; ret; }`
	d := newDevice(t)
	im := d.load([]byte(src))
	k, out := d.kernel(im, "k"), d.buffer(4)
	l := d.launch(k, x(1), x(1), out)
	l.SharedBytes = 64
	if f := k.Run(l); f != nil {
		t.Fatal(f)
	}
	if out.word(0) != 0x30+077 {
		t.Fatalf("%#x", out.word(0))
	}
	if _, size, ok := im.Global("table"); !ok || size != 16 {
		t.Fatalf("table has size %d, %v", size, ok)
	}
}
