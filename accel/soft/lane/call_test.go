package lane

import (
	"bytes"
	"encoding/binary"
	"math"
	"strings"
	"testing"

	"pegasus/accel/ptx"
	"pegasus/accel/soft/lane/exec"
)

// printer is a kernel that gives its threads' numbers and the arguments in
// args, packed as a caller of vprintf does, to the format in fmt.
const printer = `.version 7.0
.target sm_75
.address_size 64
.extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);
.visible .entry k(.param .u64 out, .param .u64 fmt, .param .u64 args)
{ .reg .b64 %a<4>; .reg .b32 %r<4>; ld.param.u64 %a0, [out]; ld.param.u64 %a1, [fmt]; ld.param.u64 %a2, [args];
mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mad.lo.u32 %r0, %r1, %r2, %r0; mul.wide.u32 %a3, %r0, 4; add.u64 %a0, %a0, %a3;
{ .param .b64 p0; .param .b64 p1; .param .b32 back; st.param.b64 [p0], %a1; st.param.b64 [p1], %a2;
call.uni (back), vprintf, (p0, p1);
ld.param.b32 %r1, [back]; }
st.global.u32 [%a0], %r1; ret; }`

// packed lays out the arguments of vprintf.
func packed(d *device, args ...any) buffer {
	var b []byte
	for _, a := range args {
		size := binary.Size(a)
		if s, ok := a.(string); ok {
			t := d.buffer(len(s) + 1)
			copy(t.mem, s)
			a, size = t.addr, 8
		}
		for len(b)%size != 0 {
			b = append(b, 0xee)
		}
		b, _ = binary.Append(b, binary.LittleEndian, a)
	}
	buf := d.buffer(max(len(b), 8))
	copy(buf.mem, b)
	return buf
}

func TestVprintf(t *testing.T) {
	for _, c := range []struct {
		format string
		args   []any
		want   string
		count  uint32
	}{
		{"plain\n", nil, "plain\n", 0},
		{"100%%", nil, "100%", 0},
		{"t=%d d=%g s=%s l=%lld\n", []any{int32(-7), 4.5, "str", int64(-5)}, "t=-7 d=4.5 s=str l=-5\n", 4},
		{"%i %u %x %X %#x %o %c|", []any{int32(3), uint32(1 << 31), uint32(255), uint32(255), uint32(255), uint32(8), int32('A')}, "3 2147483648 ff FF 0xff 10 A|", 7},
		{"%hhd %hd %ld %zu %hhu", []any{int32(0x1ff), int32(0x18000), int64(-1), uint64(math.MaxUint64), int32(-1)}, "-1 -32768 -1 18446744073709551615 255", 5},
		{"[%5d|%-5d|%05d|%+d|% d|%.3d|%08.3d]", []any{int32(42), int32(42), int32(42), int32(42), int32(42), int32(7), int32(7)}, "[   42|42   |00042|+42| 42|007|     007]", 7},
		{"%f %.2f %e %G %g %g", []any{1.5, 2.345, 12345.678, 1e-10, 100000.0, 1e6}, "1.500000 2.35 1.234568e+04 1E-10 100000 1e+06", 6},
		{"%f %5.1f %F %+g %-6g|%06g", []any{math.Inf(1), math.Inf(-1), math.NaN(), math.Inf(1), math.NaN(), math.Inf(-1)}, "inf  -inf NAN +inf nan   |  -inf", 6},
		{"[%*d|%-*d|%.*f|%*d]", []any{int32(4), int32(1), int32(4), int32(2), int32(1), 3.25, int32(-3), int32(5)}, "[   1|2   |3.2|5  ]", 8},
		{"[%5s|%-5s|%.2s]", []any{"abc", "abc", "abc"}, "[  abc|abc  |ab]", 3},
		{"[%5s|%.2s|%05s|%c|%03c]", []any{"h\u00e9", "h\u00e9", "abc", int32(0xe9), int32('A')}, "[  h\u00e9|h\xc3|  abc|\xe9|  A]", 5}, // bytes count
		{"[%#010x|%#08X|%#x|%#o|%#.0o|%#010.4x]", []any{int32(255), int32(255), int32(0), int32(8), int32(0), int32(255)}, "[0x000000ff|0X0000FF|0|010|0|    0x00ff]", 6},
		{"[%+u|% x|%+o|%+.0d|% .0d]", []any{int32(5), int32(5), int32(5), int32(0), int32(0)}, "[5|5|5|+| ]", 5},
		{"[%a|%A|%.0a|%.2a|%020a|%#.0a|%a|%a]", []any{1.0, -0.40625, 1.5, 1.9999, -1.5, 1.0, 5e-324, 0.0},
			"[0x1p+0|-0X1.AP-2|0x2p+0|0x2.00p+0|-0x000000000001.8p+0|0x1.p+0|0x0.0000000000001p-1022|0x0p+0]", 8},
		{"%f %e %+F %G % f", []any{math.Copysign(math.NaN(), -1), math.Copysign(math.NaN(), -1), math.NaN(), math.Copysign(math.NaN(), -1), math.Inf(1)}, "-nan -nan +NAN -NAN  inf", 5},
		{"[%p|%8p|%-8p]", []any{uint64(0x7f00), uint64(0), uint64(16)}, "[0x7f00|   (nil)|0x10    ]", 3},
		{"%s", []any{uint64(0)}, "(null)", 1},
		{"%k %", nil, "%k %", 0},
	} {
		d := newDevice(t)
		out, format := d.buffer(4), packed(d, c.format)
		k := d.kernel(d.load([]byte(printer)), "k")
		l := d.launch(k, x(1), x(1), out, format.long(0), packed(d, c.args...))
		if f := k.Run(l); f != nil {
			t.Errorf("%q: %v", c.format, f)
		} else if got := l.Stdout.(*bytes.Buffer).String(); got != c.want || out.word(0) != c.count {
			t.Errorf("%q prints %q and returns %d, want %q and %d", c.format, got, out.word(0), c.want, c.count)
		}
	}
}

// Each thread's text is printed as a piece, from all blocks.
func TestVprintfOfManyThreads(t *testing.T) {
	d := newDevice(t)
	out, args := d.buffer(5*4*300), packed(d, "all")
	k := d.kernel(d.load([]byte(printer)), "k")
	l := d.launch(k, x(5), x(300), out, packed(d, "hello %s\n").long(0), args)
	if f := k.Run(l); f != nil {
		t.Fatal(f)
	}
	if got, want := l.Stdout.(*bytes.Buffer).String(), strings.Repeat("hello all\n", 5*300); got != want {
		t.Fatalf("printed %d bytes, want %d", len(got), len(want))
	}
	for i := range 5 * 300 {
		if out.word(i) != 1 {
			t.Fatalf("thread %d: %d", i, int32(out.word(i)))
		}
	}
}

func TestVprintfOfBadAddresses(t *testing.T) {
	d := newDevice(t)
	out := d.buffer(4)
	k := d.kernel(d.load([]byte(printer)), "k")
	for _, a := range [][2]uint64{{1, 0}, {packed(d, "%d").long(0), 0}, {packed(d, "%s").long(0), packed(d, uint64(4)).addr}, {1 << 60, 0}} {
		if f := k.Run(d.launch(k, x(1), x(1), out, a[0], a[1])); f == nil {
			t.Errorf("%x: no fault", a)
		}
	}
	// A string without an end is cut; a null format prints nothing.
	long := d.buffer(1 << 20)
	copy(long.mem, bytes.Repeat([]byte{'x'}, len(long.mem)))
	l := d.launch(k, x(1), x(1), out, long.addr, uint64(0))
	if f := k.Run(l); f != nil {
		t.Fatal(f)
	}
	if n := l.Stdout.(*bytes.Buffer).Len(); n != exec.MaxString {
		t.Errorf("printed %d bytes of a long format", n)
	}
	d.run(k, x(1), x(1), out, uint64(0), uint64(0))
	if got := int32(out.word(0)); got != -1 {
		t.Errorf("a null format returns %d", got)
	}
}

// Operands of calls that no parameter can be are refused when the text is read.
func TestUnfitOperandsOfCalls(t *testing.T) {
	for _, c := range []string{
		"call vprintf, (%a1, %a1);", "call (%r1), vprintf, (%a1);", // how many
		"call (%r1), vprintf, (%p1, %a1);", "call (%p1), vprintf, (%a1, %a1);", "call (%r1), vprintf, (%r1, %a1);",
		"call (%r1), vprintf, ([%a1], %a1);", "call (%r1), vprintf, ({%a1, %a1}, %a1);", "call (%r1), vprintf, (%clock64, %a1);",
		"call (_), vprintf, (_, %a1);", "call (5), vprintf, (%a1, %a1);", "call (%r1), vprintf, (s+8, %a1);",
		"call (%r1), malloc, (%a1);", "call __assertfail, (%a1);",
	} {
		src := strings.Replace(string(entry(c)), ".global", `
.extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);
.extern .func (.param .b64 r) malloc(.param .b64 n);
.extern .func __assertfail(.param .b64 n);
.global`, 1)
		if _, err := ptx.Parse([]byte(src)); err == nil {
			t.Errorf("%s is accepted", c)
		}
	}
}

func TestAssertfail(t *testing.T) {
	src := strings.Replace(string(entry(`
	setp.lt.u32 %p1, %t, 33;
	@%p1 bra fine;
	mov.u64 %a2, what; cvta.global.u64 %a2, %a2; mov.u64 %a3, 1;
	call.uni __assertfail, (%a2, %a2, 17, %a2, %a3);
fine:	st.global.u32 [%a0], %t;`)), ".global .align 4 .u32 lock", `
.extern .func __assertfail(.param .b64 m, .param .b64 f, .param .b32 l, .param .b64 n, .param .b64 s);
.global .b8 what[5] = {120, 61, 61, 49, 0};
.global .align 4 .u32 lock`, 1)
	d := newDevice(t)
	k := d.kernel(d.load([]byte(src)), "k")
	l, said := d.launch(k, x(1), x(35), d.buffer(4*64), 0), new(bytes.Buffer)
	l.Stderr = said
	f := k.Run(l)
	if f == nil || f.Result != ptx.ErrAssert || f.Thread[0] != 33 || f.Msg != "x==1:17: x==1: assertion `x==1' failed" {
		t.Fatalf("fault %v", f)
	}
	want := "x==1:17: x==1: block: [0,0,0], thread: [33,0,0] Assertion `x==1` failed.\n" +
		"x==1:17: x==1: block: [0,0,0], thread: [34,0,0] Assertion `x==1` failed.\n"
	if said.String() != want {
		t.Errorf("threads said %q, want %q", said, want)
	}
}

// A variable may be argument and result of one call, whenever the function stores its result.
func TestArgumentIsResult(t *testing.T) {
	text := strings.Replace(string(entry(`
	{ .param .b32 v; st.param.b32 [v], %t; call (v), less, (v); ld.param.b32 %r1, [v]; }
	{ .param .align 4 .b8 w[8]; st.param.b32 [w], %t; st.param.b32 [w+4], 7; call (w), turned, (w); ld.param.b32 %r2, [w]; ld.param.b32 %r3, [w+4]; }
	mul.wide.u32 %a2, %t, 12; add.u64 %a2, %a2, %o; st.global.u32 [%a2], %r1; st.global.u32 [%a2+4], %r2; st.global.u32 [%a2+8], %r3;`)),
		".visible .entry", `
.func (.param .b32 out) less (.param .b32 in)
{ .reg .b32 %a; st.param.b32 [out], 100; ld.param.b32 %a, [in]; sub.u32 %a, %a, 1; st.param.b32 [out], %a; ret; }
.func (.param .align 4 .b8 out[8]) turned (.param .align 4 .b8 in[8])
{ .reg .b32 %a; ld.param.b32 %a, [in+4]; st.param.b32 [out], %a; ld.param.b32 %a, [in]; st.param.b32 [out+4], %a; ret; }
.visible .entry`, 1)
	d := newDevice(t)
	out := d.buffer(4 * 12)
	d.run(d.kernel(d.load([]byte(text)), "k"), x(1), x(4), out, 0)
	for i := range 4 {
		for k, want := range []uint32{uint32(i) - 1, 7, uint32(i)} {
			if out.word(3*i+k) != want {
				t.Errorf("thread %d: word %d is %d, not %d", i, k, out.word(3*i+k), want)
			}
		}
	}
}
