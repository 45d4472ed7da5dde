package lane

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pegasus/accel/ptx"
	"pegasus/accel/soft/lane/internal/lanetest"
)

// withFunctions puts functions before a kernel. The kernel's body has in %a0 the address of its 32-bit element of out,
// in %t the thread's number.
func withFunctions(functions, body string) []byte {
	text := string(entry(body))
	at := strings.Index(text, ".visible .entry")
	return []byte(text[:at] + functions + "\n" + text[at:])
}

// called runs such a program and returns the values that the threads stored.
func called(t *testing.T, threads int, functions, body string) []uint32 {
	t.Helper()
	d := newDevice(t)
	out := d.buffer(4 * threads)
	d.run(d.kernel(d.load(withFunctions(functions, body)), "k"), x(1), x(threads), out, threads)
	r := make([]uint32, threads)
	for i := range r {
		r[i] = out.word(i)
	}
	return r
}

// faulty runs such a program and returns its fault.
func faulty(t *testing.T, functions, body string) *Fault {
	t.Helper()
	d := newDevice(t)
	out := d.buffer(4 * 64)
	k := d.kernel(d.load(withFunctions(functions, body)), "k")
	f := k.Run(d.launch(k, x(1), x(64), out, 64))
	if f == nil {
		t.Fatal("no fault")
	}
	return f
}

const factorial = `
.func (.param .b32 r) factorial(.param .b32 n) { .reg .pred %p; .reg .b32 %n, %m;
	ld.param.u32 %n, [n]; setp.gt.u32 %p, %n, 1; mov.u32 %m, 1; @!%p bra done;
	{ .param .b32 a; .param .b32 b; sub.u32 %m, %n, 1; st.param.b32 [a], %m; call.uni (b), factorial, (a); ld.param.b32 %m, [b]; }
	mul.lo.u32 %m, %m, %n;
done:	st.param.u32 [r], %m; ret; }`

// Each thread goes to another depth, and all meet again after the call.
func TestRecursion(t *testing.T) {
	got := called(t, 300, factorial, `
	.param .b32 a; .param .b32 b; rem.u32 %r1, %t, 13; st.param.b32 [a], %r1; call (b), factorial, (a); ld.param.b32 %r2, [b];
	activemask.b32 %r3; popc.b32 %r3, %r3; add.u32 %r2, %r2, %r3; st.global.u32 [%a0], %r2;`)
	expect(t, got, func(i int) uint32 {
		f := uint32(1)
		for k := range uint32(i % 13) {
			f *= k + 1
		}
		return f + uint32(min(300-i/32*32, 32))
	})
}

const fibonacci = `
.func (.param .b32 r) fib(.param .b32 n) { .reg .pred %p; .reg .b32 %n, %m, %k;
	ld.param.u32 %n, [n]; setp.lt.u32 %p, %n, 2; st.param.u32 [r], %n; @%p ret;
	sub.u32 %m, %n, 1; call (%k), fib, (%m); sub.u32 %m, %n, 2; call (%m), fib, (%m); add.u32 %k, %k, %m;
	st.param.u32 [r], %k; ret; }`

// Two calls in one function: registers alive across the first must be kept. The second returns early, under a guard.
func TestFibonacci(t *testing.T) {
	got := called(t, 130, fibonacci, `
	rem.u32 %r1, %t, 11; call (%r2), fib, (%r1); st.global.u32 [%a0], %r2;`)
	want := []uint32{0, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55}
	expect(t, got, func(i int) uint32 { return want[i%11] })
}

// A kernel that calls a thousand functions, each with registers that are alive across a call of itself: every call keeps those of
// its own function alone.
func TestManyFunctions(t *testing.T) {
	const functions, sums, rounds = 1000, 12, 2
	var text, body strings.Builder
	body.WriteString("rem.u32 %r1, %t, 3; mov.u32 %r3, 0;\n")
	for i := range functions {
		fmt.Fprintf(&text, ".func (.param .b32 r) f%d(.param .b32 n) { .reg .pred %%p, %%q; .reg .b32 %%n, %%k, %%m, %%s<%d>; ld.param.u32 %%n, [n]; mov.u32 %%k, 0;\n", i, sums)
		for j := range sums {
			fmt.Fprintf(&text, "add.u32 %%s%d, %%n, %d; ", j, i+j)
		}
		fmt.Fprintf(&text, "\nloop: setp.eq.u32 %%p, %%n, 0; @%%p bra skip; sub.u32 %%m, %%n, 1; call (%%m), f%d, (%%m); add.u32 %%s0, %%s0, %%m;\nskip: ", i)
		for j := range sums - 1 {
			fmt.Fprintf(&text, "add.u32 %%s%d, %%s%d, %%s%d; ", j+1, j+1, j)
		}
		fmt.Fprintf(&text, "add.u32 %%k, %%k, 1; setp.lt.u32 %%q, %%k, %d; @%%q bra loop; st.param.u32 [r], %%s%d; ret; }\n", rounds, sums-1)
		fmt.Fprintf(&body, "call (%%r2), f%d, (%%r1); add.u32 %%r3, %%r3, %%r2;\n", i)
	}
	body.WriteString("st.global.u32 [%a0], %r3;")
	var f func(i, n uint32) uint32
	f = func(i, n uint32) uint32 {
		var s [sums]uint32
		for j := range s {
			s[j] = n + i + uint32(j)
		}
		for range rounds {
			if n > 0 {
				s[0] += f(i, n-1)
			}
			for j := range sums - 1 {
				s[j+1] += s[j]
			}
		}
		return s[sums-1]
	}
	var want [3]uint32
	for i := range uint32(functions) {
		for n := range want {
			want[n] += f(i, uint32(n))
		}
	}
	expect(t, called(t, 70, text.String(), body.String()), func(i int) uint32 { return want[i%3] })
}

func TestAckermann(t *testing.T) {
	got := called(t, 70, `
.func (.param .b32 r) ack(.param .b32 m, .param .b32 n) { .reg .pred %p, %q; .reg .b32 %m, %n, %k;
	ld.param.u32 %m, [m]; ld.param.u32 %n, [n]; setp.eq.u32 %p, %m, 0; @%p bra base;
	setp.eq.u32 %q, %n, 0; sub.u32 %k, %m, 1; @%q bra zero;
	sub.u32 %n, %n, 1; call (%n), ack, (%m, %n); call (%n), ack, (%k, %n); bra.uni out;
zero:	call (%n), ack, (%k, 1); bra.uni out;
base:	add.u32 %n, %n, 1;
out:	st.param.u32 [r], %n; ret; }`, `
	and.b32 %r1, %t, 3; shr.u32 %r2, %t, 2; and.b32 %r2, %r2, 3; setp.ne.u32 %p1, %r1, 9;
	call (%r3), ack, (%r1, %r2); @%p1 add.u32 %r3, %r3, 100; st.global.u32 [%a0], %r3;`)
	// A(m, n) for n = 0…3
	want := [4][4]uint32{{1, 2, 3, 4}, {2, 3, 4, 5}, {3, 5, 7, 9}, {5, 13, 29, 61}}
	expect(t, got, func(i int) uint32 { return want[i&3][i>>2&3] + 100 })
}

// Mutual recursion by way of a declaration, with 64-bit values and predicates alive across the calls.
func TestMutualRecursion(t *testing.T) {
	got := called(t, 64, `
.func (.param .b32 r) odd(.param .b32 n);
.func (.param .b32 r) even(.param .b32 n) { .reg .pred %p, %q; .reg .b32 %n, %k; .reg .b64 %w, %v;
	ld.param.u32 %n, [n]; cvt.u64.u32 %w, %n; shl.b64 %w, %w, 36; setp.eq.u32 %p, %n, 0; mov.u32 %k, 1; @%p bra out;
	and.b32 %k, %n, 2; setp.ne.u32 %q, %k, 0; sub.u32 %k, %n, 1; call (%k), odd, (%k);
	@%q add.u32 %k, %k, 0x10000; shr.u64 %v, %w, 36; cvt.u32.u64 %n, %v; mad.lo.u32 %k, %n, 0x100, %k;
out:	st.param.u32 [r], %k; ret; }
.func (.param .b32 r) odd(.param .b32 n) { .reg .pred %p; .reg .b32 %n, %k;
	ld.param.u32 %n, [n]; setp.eq.u32 %p, %n, 0; mov.u32 %k, 0; @%p bra out; sub.u32 %k, %n, 1; call (%k), even, (%k);
out:	st.param.u32 [r], %k; ret; }`, `call (%r1), even, (%t); st.global.u32 [%a0], %r1;`)
	expect(t, got, func(i int) uint32 {
		var even func(n int) uint32
		even = func(n int) uint32 {
			switch {
			case n == 0:
				return 1
			case n == 1:
				return 0x100
			}
			return even(n-2) + uint32(n)*0x100 + uint32(n&2)/2*0x10000
		}
		return even(i)
	})
}

const table = `
.func (.param .b32 r) f0(.param .b32 n) { .reg .b32 %n; ld.param.u32 %n, [n]; add.u32 %n, %n, 1000; st.param.u32 [r], %n; ret; }
.func (.param .b32 r) f1(.param .b32 n) { .reg .b32 %n; ld.param.u32 %n, [n]; mul.lo.u32 %n, %n, 3; st.param.u32 [r], %n; ret; }
.func (.param .b32 r) f2(.param .b32 n) { .reg .pred %p; .reg .b32 %n; ld.param.u32 %n, [n]; st.param.u32 [r], 7; and.b32 %n, %n, 8; setp.ne.u32 %p, %n, 0; @%p ret; st.param.u32 [r], 9; ret; }
.global .align 8 .u64 table[3] = {f0, generic(f1), f2};`

// Threads of a group call different functions, and meet again after the call.
func TestFunctionPointers(t *testing.T) {
	const body = `
	rem.u32 %r1, %t, 3; mul.wide.u32 %a2, %r1, 8; mov.u64 %a3, table; add.u64 %a2, %a2, %a3; ld.global.u64 %a2, [%a2];
	{ .param .b32 a; .param .b32 b; st.param.b32 [a], %t;
	proto : .callprototype (.param .b32 _) _ (.param .b32 _);
	call (b), %a2, (a), proto; ld.param.b32 %r2, [b]; }
	activemask.b32 %r3; popc.b32 %r3, %r3; mad.lo.u32 %r2, %r3, 0x100000, %r2; st.global.u32 [%a0], %r2;`
	want := func(i int) uint32 {
		lanes := uint32(min(300-i/32*32, 32)) << 20
		switch {
		case i%3 == 0:
			return lanes + uint32(i) + 1000
		case i%3 == 1:
			return lanes + 3*uint32(i)
		case i&8 != 0:
			return lanes + 7
		}
		return lanes + 9
	}
	expect(t, called(t, 300, table, body), want)
	expect(t, called(t, 300, table, strings.ReplaceAll(body, "proto : .callprototype (.param .b32 _) _ (.param .b32 _);", "proto: .calltargets f0, f1, f2;")), want)
	// In GCC's spelling, of an address in a register, without arguments.
	got := called(t, 40, `
.func g { .reg .b32 %r; .reg .b64 %a; mov.u32 %r, 5; mov.u64 %a, lock; st.global.u32 [%a], %r; ret; }
.func (.param .u32 %value_out) h() { st.param.u32 [%value_out], 6; ret; }`, `
	.reg .u64 %fn; .reg .u32 %rv; mov.u64 %fn, g;
	$LCT0:	.callprototype _;
	call %fn, $LCT0;
	mov.u64 %fn, h;
	{ .param .u32 %value_in;
	$LCT1:	.callprototype (.param.u32 %rval) _;
	call (%value_in), %fn, $LCT1;
	ld.param.u32 %rv, [%value_in]; }
	mov.u64 %a2, lock; ld.global.u32 %r1, [%a2]; mad.lo.u32 %rv, %rv, 10, %r1; st.global.u32 [%a0], %rv;`)
	expect(t, got, func(int) uint32 { return 65 })
}

// A guarded call, of a pointer that is only valid in the calling threads.
func TestGuardedIndirectCall(t *testing.T) {
	got := called(t, 64, table, `
	setp.lt.u32 %p1, %t, 20; mov.u32 %r2, 77; mov.u64 %a2, 0; @%p1 mov.u64 %a2, f1;
	proto: .callprototype (.param .b32 _) _ (.param .b32 _);
	@%p1 call (%r2), %a2, (%t), proto;
	st.global.u32 [%a0], %r2;`)
	expect(t, got, func(i int) uint32 {
		if i < 20 {
			return uint32(3 * i)
		}
		return 77
	})
}

// Structures are passed by value in both directions, and local variables of a frame are its own.
func TestStructures(t *testing.T) {
	got := called(t, 96, `
.func (.param .align 8 .b8 r[16]) swap(.param .align 8 .b8 s[16], .param .b32 depth) { .reg .pred %p; .reg .b32 %n; .reg .b64 %a<4>;
	.local .align 16 .b8 own[16];
	ld.param.b64 %a0, [s]; ld.param.b64 %a1, [s+8]; ld.param.b32 %n, [depth];
	mov.u64 %a2, own; cvta.local.u64 %a2, %a2; st.u64 [%a2], %a1; st.u64 [%a2+8], %a0;
	setp.eq.u32 %p, %n, 0; @%p bra out; sub.u32 %n, %n, 1;
	{ .param .align 8 .b8 p[16]; .param .b32 q; .param .align 8 .b8 v[16]; st.param.b64 [p], %a1; st.param.b64 [p+8], %a0; st.param.b32 [q], %n;
	call.uni (v), swap, (p, q); ld.param.b64 %a0, [v]; ld.param.b64 %a1, [v+8]; }
	add.u64 %a0, %a0, 1; st.local.u64 [own], %a0; st.local.u64 [own+8], %a1;
out:	ld.local.v2.u64 {%a0, %a1}, [own]; st.param.b64 [r], %a0; st.param.b64 [r+8], %a1; ret; }`, `
	.param .align 8 .b8 p[16]; .param .b32 q; .param .align 8 .b8 v[16]; cvt.u64.u32 %a2, %t; st.param.b64 [p], %a2; st.param.b64 [p+8], 1000;
	and.b32 %r1, %t, 7; st.param.b32 [q], %r1; call (v), swap, (p, q); ld.param.b64 %a2, [v]; ld.param.b64 %a3, [v+8];
	shl.b64 %a3, %a3, 16; add.u64 %a2, %a2, %a3; cvt.u32.u64 %r2, %a2; st.global.u32 [%a0], %r2;`)
	expect(t, got, func(i int) uint32 {
		first, second := uint32(i), uint32(1000)
		for range i&7 + 1 {
			first, second = second, first
		}
		return first + uint32(i&7) + second<<16
	})
}

// Barriers, warp primitives, loops and exits in functions that are called at different depths.
func TestCalleeWithBarrier(t *testing.T) {
	got := called(t, 512, `
.shared .align 4 .u32 sum;
.func (.param .b32 r) meet(.param .b32 n) { .reg .pred %p, %q; .reg .b32 %n, %m, %k; .reg .b64 %a;
	ld.param.u32 %n, [n]; mov.u64 %a, sum; mov.u32 %m, 0; mov.u32 %k, 0;
loop:	setp.eq.u32 %q, %n, 100; @%q exit;
	atom.shared.add.u32 %k, [%a], 1; bar.sync 0; ld.shared.u32 %k, [%a]; bar.sync 0;
	shfl.sync.idx.b32 %k|%q, %k, 3, 31, -1;
	add.u32 %m, %m, 1; setp.lt.u32 %q, %m, 2; @%q bra loop;
	setp.eq.u32 %p, %n, 0; @%p bra out; sub.u32 %n, %n, 1; call (%m), meet, (%n); add.u32 %k, %k, %m;
out:	st.param.u32 [r], %k; ret; }`, `
	setp.ge.u32 %p1, %t, 480; mov.u32 %r1, 2; @%p1 mov.u32 %r1, 100; call (%r2), meet, (%r1); st.global.u32 [%a0], %r2;`)
	// 480 threads add in each of 6 rounds; the values after the rounds 2, 4 and 6 are summed.
	expect(t, got, func(i int) uint32 {
		if i >= 480 {
			return 0
		}
		return 480 * (2 + 4 + 6)
	})
}

// A large function is called from several places, in loops, rather than inlined.
func TestLargeFunction(t *testing.T) {
	got := called(t, 40, ".func (.param .b32 r) big(.param .b32 n) { .reg .b32 %n; ld.param.u32 %n, [n];\n"+
		strings.Repeat("add.u32 %n, %n, 1;\n", 400)+"st.param.u32 [r], %n; ret; }", `
	mov.u32 %r1, 0; mov.u32 %r2, %t;
loop:	call (%r2), big, (%r2); call (%r2), big, (%r2); add.u32 %r1, %r1, 1; setp.le.u32 %p1, %r1, %t; @%p1 bra loop;
	st.global.u32 [%a0], %r2;`)
	expect(t, got, func(i int) uint32 { return uint32(i + (i+1)*800) })
}

func TestBadCalls(t *testing.T) {
	const proto = "proto: .callprototype (.param .b32 _) _ (.param .b32 _);\n"
	for _, c := range []struct {
		name, functions, body string
		result                int32
		thread                uint32
		msg                   string
	}{
		{"null", table, proto + "mov.u64 %a2, 0; call (%r2), %a2, (%t), proto;", ptx.ErrInvalidPC, 0, "no function"},
		{"within", table, proto + "setp.eq.u32 %p1, %t, 37; mov.u64 %a2, f1; @%p1 add.u64 %a2, %a2, 8; call (%r2), %a2, (%t), proto;", ptx.ErrInvalidPC, 37, "no function"},
		{"beyond", table, proto + "mov.u64 %a2, f2; add.u64 %a2, %a2, 16; call (%r2), %a2, (%t), proto;", ptx.ErrInvalidPC, 0, "no function"},
		{"data", table, proto + "mov.u64 %a2, table; call (%r2), %a2, (%t), proto;", ptx.ErrInvalidPC, 0, "no function"},
		{"as memory", table, proto + "mov.u64 %a2, f2; ld.u32 %r2, [%a2];", ptx.ErrIllegalAddress, 0, "illegal address"},
		{"endless", ".func f() { call f; ret; }", "call f;", ptx.ErrHardwareStack, 0, "stack overflow"},
		{"endless by address", ".func f() { .reg .b64 %a; mov.u64 %a, f; l: .callprototype _; call %a, l; ret; }", "setp.ge.u32 %p1, %t, 5; @%p1 call f;", ptx.ErrHardwareStack, 5, "stack overflow"},
	} {
		f := faulty(t, c.functions, c.body)
		if f.Result != c.result || f.Thread[0] != c.thread || !strings.Contains(f.Msg, c.msg) || f.Line == 0 || f.Kernel != "k" {
			t.Errorf("%s: %v (%d)", c.name, f, f.Result)
		}
	}
}

// A larger stack is used as far as there is room.
func TestStackSize(t *testing.T) {
	const body = ".param .b32 a; .param .b32 b; st.param.b32 [a], 3000; call (b), factorial, (a); ld.param.b32 %r2, [b]; st.global.u32 [%a0], %r2;"
	d := newDevice(t)
	out := d.buffer(4 * 64)
	k := d.kernel(d.load(withFunctions(factorial, body)), "k")
	for _, c := range []struct {
		stack  uint64
		result int32
	}{{0, ptx.ErrHardwareStack}, {512 << 10, 0}, {1 << 40, 0}, {0, ptx.ErrHardwareStack}} {
		l := d.launch(k, x(1), x(64), out, 64)
		l.Stack = c.stack
		if f := k.Run(l); f == nil != (c.result == 0) || f != nil && f.Result != c.result {
			t.Errorf("stack of %d: %v", c.stack, f)
		}
	}
}

// Threads return from a function one by one out of a loop and lock one another out.
func TestLockInCallee(t *testing.T) {
	got := called(t, 64, `
.func (.param .b32 r) next(.param .b32 n) { .reg .pred %p; .reg .b32 %n, %k; .reg .b64 %a;
	mov.u64 %a, lock;
again:	atom.global.cas.b32 %k, [%a], 0, 1; setp.ne.u32 %p, %k, 0; @%p bra again;
	ld.volatile.global.u32 %k, [lock2]; add.u32 %n, %k, 1; st.volatile.global.u32 [lock2], %n; membar.gl;
	st.param.u32 [r], %k; atom.global.exch.b32 %k, [%a], 0; ret; }`, `
	mov.u64 %a2, 1; call (%r1), next, (0); mul.wide.u32 %a2, %r1, 4; add.u64 %a2, %o, %a2; st.global.u32 [%a2], 1;`)
	expect(t, got, func(int) uint32 { return 1 })
}

func TestHeapOfKernel(t *testing.T) {
	d := newDevice(t)
	mem := d.buffer(64 << 10)
	heap := NewHeap(mem.addr, 64<<10)
	out := d.buffer(8 * 64)
	im := d.load([]byte(`.version 7.0
.target sm_75
.address_size 64
.extern .func (.param .b64 r) malloc(.param .b64 n);
.extern .func free(.param .b64 p);
.visible .entry take(.param .u64 out, .param .u32 n) { .reg .b64 %a<4>; .reg .b32 %r<4>; ld.param.u64 %a0, [out]; ld.param.u32 %r1, [n]; mov.u32 %r0, %tid.x;
mul.wide.u32 %a1, %r0, 8; add.u64 %a0, %a0, %a1; cvt.u64.u32 %a2, %r1;
call (%a3), malloc, (%a2); st.global.u64 [%a0], %a3; .reg .pred %p; setp.eq.u64 %p, %a3, 0; @%p ret; st.u32 [%a3], %r0; ret; }
.visible .entry give(.param .u64 out) { .reg .b64 %a<4>; .reg .b32 %r<4>; .reg .pred %p; ld.param.u64 %a0, [out]; mov.u32 %r0, %tid.x;
mul.wide.u32 %a1, %r0, 8; add.u64 %a0, %a0, %a1; ld.global.u64 %a2, [%a0]; setp.eq.u64 %p, %a2, 0; @%p bra no; ld.u32 %r1, [%a2]; setp.ne.u32 %p, %r1, %r0; @%p trap;
no: call free, (%a2); ret; }`))
	if !d.kernel(im, "give").Func().Heap {
		t.Error("a kernel that frees is not known to use the heap")
	}
	run := func(name string, args ...any) *Fault {
		k := d.kernel(im, name)
		l := d.launch(k, x(1), x(64), args...)
		l.Heap = heap
		return k.Run(l)
	}
	for round := range 3 {
		if f := run("take", out, 4000); f != nil {
			t.Fatal(f)
		}
		seen := map[uint64]bool{}
		for i := range 64 {
			if p := out.long(i); p != 0 && (seen[p] || p < mem.addr || p+4000 > mem.addr+64<<10 || p%16 != 0) {
				t.Fatalf("malloc gave %#x", p)
			}
			seen[out.long(i)] = true
		}
		if len(seen) != 17 { // 16 pages, and null
			t.Fatalf("round %d: %d different addresses", round, len(seen))
		}
		if f := run("give", out); f != nil {
			t.Fatal(f)
		}
		if f := run("give", out); f == nil || f.Result != ptx.ErrLaunchFailed && f.Result != ptx.ErrIllegalAddress {
			t.Fatal("freed twice:", f)
		}
	}
	heap = nil
	if f := run("take", out, 16); f != nil || out.long(0) != 0 {
		t.Fatal("without a heap:", f, out.long(0))
	}
}

// Random allocations never overlap, and all of the heap is free again in the end.
func TestHeap(t *testing.T) {
	const base, size = 0x7000_0000_0000, 1 << 20
	h := NewHeap(base, size+100)
	r := lanetest.Random(3)
	type object struct{ addr, size uint64 }
	var live []object
	for range 20_000 {
		if len(live) > 0 && r.IntN(2) == 0 {
			i := r.IntN(len(live))
			if !h.Free(live[i].addr) || h.Free(live[i].addr) || h.Free(live[i].addr+1) {
				t.Fatalf("free of %#x", live[i].addr)
			}
			live[i] = live[len(live)-1]
			live = live[:len(live)-1]
			continue
		}
		n := uint64(1 + r.IntN(1<<r.IntN(16)))
		addr := h.Alloc(n)
		if addr == 0 {
			continue
		}
		if addr < base || addr+n > base+size || addr%16 != 0 {
			t.Fatalf("%d bytes at %#x", n, addr)
		}
		for _, o := range live {
			if addr < o.addr+o.size && o.addr < addr+n {
				t.Fatalf("%d bytes at %#x overlap %d at %#x", n, addr, o.size, o.addr)
			}
		}
		live = append(live, object{addr, n})
	}
	for _, o := range live {
		if !h.Free(o.addr) {
			t.Fatalf("free of %#x", o.addr)
		}
	}
	if addr := h.Alloc(size); addr != base || h.Alloc(1) != 0 || h.Free(base+4096) || !h.Free(base) {
		t.Fatalf("all of the heap: %#x", addr)
	}
	for _, n := range []uint64{0, size + 1, 1 << 63, ^uint64(0)} {
		if addr := h.Alloc(n); addr != 0 {
			t.Errorf("%d bytes at %#x", n, addr)
		}
	}
	for i := range size / 16 {
		if h.Alloc(16) == 0 {
			t.Fatal("no room for object", i)
		}
	}
	if h.Alloc(1) != 0 {
		t.Error("more than there is")
	}
}

// The output of clang for testdata/virtual.cu.
//
//go:embed testdata/virtual.ptx
var virtual []byte

func TestCompiledCalls(t *testing.T) {
	const threads = 300
	d := newDevice(t)
	im := d.load(virtual)
	heap := d.buffer(1 << 20)
	out := d.buffer(8 * threads)
	run := func(name string) {
		t.Helper()
		k := d.kernel(im, name)
		l := d.launch(k, x(3), x(100), out)
		l.Heap = NewHeap(heap.addr, 1<<20)
		if f := k.Run(l); f != nil {
			t.Fatal(f)
		}
	}
	run("shapes")
	for i := range threads {
		area, twice := i*i, 2*i*i
		if i%3 == 0 {
			area, twice = 6*i*i, 12*i*i+1
		}
		if got := out.word(i); got != uint32(area+1000*twice) {
			t.Fatalf("shape %d: %d", i, got)
		}
	}
	run("splits")
	type pair struct{ low, high, sum int64 }
	var split func(p pair, depth int) pair
	split = func(p pair, depth int) pair {
		if depth == 0 || p.low >= p.high {
			return p
		}
		middle := (p.low + p.high) / 2
		a, b := split(pair{p.low, middle, p.sum + 1}, depth-1), split(pair{middle + 1, p.high, p.sum + 2}, depth-1)
		return pair{a.low + b.low, a.high + b.high, a.sum*3 + b.sum}
	}
	for i := range threads {
		p := split(pair{0, int64(i), 1}, i%6)
		if got, want := int64(out.long(i)), p.low+1000*p.high+1000000*p.sum; got != want {
			t.Fatalf("split %d: %d, want %d", i, got, want)
		}
	}
	run("applies")
	for i := range threads {
		if got := out.word(i); got != uint32([]int{i + 7, i - 7, i * 7}[i%3]) {
			t.Fatalf("operation %d: %d", i, got)
		}
	}
	run("trees")
	for i := range threads {
		r := uint32(i + 1)
		var keys []int
		for range 1 + i%9 {
			r = r*1103515245 + 12345
			keys = append(keys, int(r>>16&1023))
		}
		slices.Sort(keys)
		sum := 0
		for rank, key := range keys {
			sum += rank * key
		}
		if got := out.word(i); got != uint32(sum*16+len(keys)) {
			t.Fatalf("tree %d: %d", i, got)
		}
	}
}

// Calls as deep as a chain of functions, of which some are inlined.
func TestCallChain(t *testing.T) {
	const depth = 3000
	var b strings.Builder
	b.WriteString(".func (.param .b32 r) f0(.param .b32 n) { .reg .b32 %n; ld.param.u32 %n, [n]; st.param.u32 [r], %n; ret; }\n")
	for i := range depth {
		fmt.Fprintf(&b, ".func (.param .b32 r) f%d(.param .b32 n) { .reg .b32 %%n, %%m; ld.param.u32 %%n, [n]; add.u32 %%m, %%n, 1; call (%%m), f%d, (%%m); sub.u32 %%m, %%m, %%n; st.param.u32 [r], %%m; ret; }\n", i+1, i)
	}
	got := called(t, 33, b.String(), fmt.Sprintf("call (%%r1), f%d, (%%t); st.global.u32 [%%a0], %%r1;", depth))
	expect(t, got, func(i int) uint32 {
		r := uint32(i + depth)
		for k := depth - 1; k >= 0; k-- {
			r -= uint32(i + k)
		}
		return r
	})
}

func BenchmarkFibonacci(b *testing.B) {
	d := newDevice(b)
	out := d.buffer(4 * 256)
	k := d.kernel(d.load(withFunctions(fibonacci, "call (%r2), fib, (16); st.global.u32 [%a0], %r2;")), "k")
	for b.Loop() {
		d.run(k, x(1), x(256), out, 256)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/3193, "ns/call") // 3193 calls of 256 threads
}
