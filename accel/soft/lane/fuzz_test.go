package lane

import (
	"bytes"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"pegasus/accel/ptx"
	"pegasus/accel/ptx/cases"
	"pegasus/accel/soft/lane/internal/lanetest"
	"pegasus/guest/bench/kernels"
)

// runAll compiles and runs every kernel of a module with little time.
func runAll(t *testing.T, m *ptx.Module) {
	d := newDevice(t)
	out := d.buffer(4096)
	im, err := Load(m, func(size, align uint64) (uint64, []byte, error) {
		if size > 1<<20 {
			return 0, nil, fmt.Errorf("too large")
		}
		return d.alloc(size, align)
	})
	if err != nil {
		return
	}
	for _, f := range m.Kernels {
		k, _ := im.Kernel(f.Name)
		l := &Launch{Grid: x(2), Block: x(70), SharedBytes: 128, Params: make([]byte, max(f.ParamBytes, 8)), Memory: d, Cancel: new(atomic.Bool)}
		l.Texture = func(h uint64) *Texture {
			return &Texture{Data: make([]byte, 32), Width: 4, Height: 2, Depth: 3, PitchBytes: 4, SliceBytes: 12, Format: U8, Channels: 1,
				Surface: h&1 != 0, Layered: h&2 != 0, Linear: h&4 != 0, Normalized: h&8 != 0}
		}
		for i := range 8 {
			l.Params[i] = byte(out.addr >> (8 * i))
		}
		stop := time.AfterFunc(3*time.Millisecond, func() { l.Cancel.Store(true) })
		k.Run(l)
		stop.Stop()
	}
}

// No text makes the engine panic or hang.
func FuzzText(f *testing.F) {
	for _, name := range kernels.Names() {
		f.Add(kernels.PTX(name))
	}
	f.Add(entry("bar.sync 0; shfl.sync.idx.b32 %r1|%p1, %t, 2, 0x181f, -1; atom.global.add.u32 %r1, [%o], 1; st.u32 [%a0], %r1;"))
	f.Add(withFunctions(factorial+table, "call (%r1), factorial, (%t); mov.u64 %a2, f2; l: .callprototype (.param .b32 _) _ (.param .b32 _); call (%r1), %a2, (%t), l;"))
	f.Add(virtual)
	f.Add(entry("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%r1, %r2}, {%r1}, {%r2}, {%r1, %r2}; ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%r1, %r2}, [%r1];"))
	f.Add(entry("wmma.load.a.sync.aligned.row.m16n16k16.s8 {%r1, %r2}, [%o], %t; cp.async.ca.shared.global [%r1], [%o], 8, %t; atom.add.noftz.f16x2 %r1, [%o], %t;"))
	f.Add(reader(".global .texref t; .global .samplerref s = { filter_mode = linear };", "tex.3d.v4.f32.f32 {%r5, %r6, %r7, %r8}, [%a0, s, {%r1, %r2, %r3, %r4}]; tld4.r.a2d.v4.u32.f32 {%r5, _, %r7, %r8}, [t, {%r1, %r2, %r3, %r4}]; txq.width.b32 %r5, [t];"))
	f.Add(reader(".global .surfref s;", "add.u64 %a0, %a0, 1; suld.b.3d.v2.b32.clamp {%r5, %r6}, [%a0, {%r1, %r2, %r3, %r4}]; sust.p.a1d.b32.zero [%a0, {%r1, %r2}], %r3; sured.b.max.2d.s32.clamp [%a0, {%r1, %r2}], %r3;"))
	f.Fuzz(func(t *testing.T, src []byte) {
		if m, err := ptx.Parse(src); err == nil {
			runAll(t, m)
		}
	})
}

// randomProgram makes a kernel of instructions that the bytes choose: any form with
// any registers, and branches anywhere.
func randomProgram(data []byte, forms []cases.Form) []byte {
	var b bytes.Buffer
	next := func() int {
		if len(data) == 0 {
			return 0
		}
		v := data[0]
		data = data[1:]
		return int(v)
	}
	b.WriteString(`.version 7.0
.target sm_75
.address_size 64
.func (.param .b32 r) fn(.param .b32 n, .param .b64 p) { .reg .pred %p<2>; .reg .b32 %n<3>; .reg .b64 %a;
ld.param.u32 %n0, [n]; ld.param.u64 %a, [p]; st.param.u32 [r], %n0; and.b32 %n1, %n0, 7; setp.eq.u32 %p0, %n1, 0; @%p0 ret;
proto: .callprototype (.param .b32 _) _ (.param .b32 _, .param .b64 _);
shr.u32 %n1, %n0, 1; @%p1 bar.sync 0; setp.gt.u32 %p1, %n0, 9; @%p1 call (%n2), %a, (%n1, %a), proto; @!%p1 call (%n2), fn, (%n1, %a);
add.u32 %n2, %n2, %n0; st.param.u32 [r], %n2; }
.visible .entry k(.param .u64 out)
{ proto: .callprototype (.param .b32 _) _ (.param .b32 _, .param .b64 _);
.reg .pred %p<4>; .reg .b16 %h<4>; .reg .b32 %r<4>; .reg .b64 %l<4>; .shared .b8 s[256]; .local .align 8 .b8 m[64];
ld.param.u64 %l0, [out]; mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mov.u64 %l3, m; cvta.local.u64 %l2, %l3;
`)
	for n := 0; len(data) > 0 && n < 64; n++ {
		fmt.Fprintf(&b, "L%d: ", n)
		if g := next(); g < 64 {
			fmt.Fprintf(&b, "@%s%%p%d ", []string{"", "!"}[g&1], g>>1&3)
		}
		switch op := next(); {
		case op < 32:
			fmt.Fprintf(&b, "bra L%d;\n", next()%65)
		case op < 40:
			b.WriteString("bar.sync 0;\n")
		case op < 44:
			b.WriteString("ret;\n")
		case op < 60:
			fmt.Fprintf(&b, "ld.%s.b32 %%r%d, [%%l%d+%d];\n", []string{"global", "shared", "local", "volatile"}[op&3], next()&3, next()&3, next())
		case op < 76:
			fmt.Fprintf(&b, "st.%s.b32 [%%l%d+%d], %%r%d;\n", []string{"global", "shared", "local", "volatile"}[op&3], next()&3, next(), next()&3)
		case op < 80:
			fmt.Fprintf(&b, "atom.%s.cas.b32 %%r%d, [%%l%d], %%r%d, 1;\n", []string{"global", "shared"}[op&1], next()&3, next()&3, next()&3)
		case op < 84:
			fmt.Fprintf(&b, "call (%%r%d), fn, (%%r%d, %%l%d);\n", next()&3, next()&3, next()&3)
		case op < 88:
			fmt.Fprintf(&b, "mov.u64 %%l%d, fn;\n", next()&3)
		case op < 92:
			fmt.Fprintf(&b, "call (%%r%d), %%l%d, (%%r%d, %%l%d), proto;\n", next()&3, next()&3, next()&3, next()&3)
		default:
			f := forms[(op*256+next())%len(forms)]
			dst, pair, paired := strings.Cut(f.Destination, "|")
			fmt.Fprintf(&b, "%s %%%c%d%s", f.Instruction, dst[0], next()&3, dst[1:])
			if paired {
				fmt.Fprintf(&b, "|%%%s%d", pair, next()&3)
			}
			for _, s := range f.Sources {
				if s.Kind == '#' {
					fmt.Fprintf(&b, ", %s%#x", s.Sign, s.Bits)
				} else {
					fmt.Fprintf(&b, ", %s%%%c%d%s", s.Sign, s.Kind, next()&3, s.Selector)
				}
			}
			b.WriteString(";\n")
		}
		if len(data) == 0 || n == 63 {
			for k := n + 1; k <= 64; k++ {
				fmt.Fprintf(&b, "L%d: ", k)
			}
		}
	}
	b.WriteString("ret; }\n")
	return b.Bytes()
}

// Random programs neither panic nor hang; they are valid, so they must compile.
func FuzzProgram(f *testing.F) {
	forms := readForms(f)
	f.Add([]byte("\x80\x10\x05\x90\xa0\x01\x02\x03\x90\x45\x01\x02\x03"))
	r := lanetest.Random(9)
	for range 50 {
		b := make([]byte, 20+r.IntN(200))
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) == 0 {
			return
		}
		src := randomProgram(data, forms)
		m, err := ptx.Parse(src)
		if err != nil {
			t.Fatalf("%v\n%s", err, src)
		}
		d := newDevice(t)
		im, err := Load(m, d.alloc)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.kernel(im, "k").Compile(); err != nil {
			t.Fatalf("%v\n%s", err, src)
		}
		runAll(t, m)
	})
}
