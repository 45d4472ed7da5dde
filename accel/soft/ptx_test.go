package soft

import (
	"encoding/binary"
	"math"
	"strings"
	"testing"

	"pegasus/accel"
	"pegasus/accel/soft/memory"
	"pegasus/cuda"
)

const header = ".version 6.0\n.target sm_70\n.address_size 64\n"

const vectorAdd = header + `
.visible .entry vectorAdd(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n)
{
	.reg .pred %p<2>;
	.reg .b32 %r<6>;
	.reg .f32 %f<4>;
	.reg .b64 %rd<9>;
	ld.param.u64 %rd1, [a];
	ld.param.u64 %rd2, [b];
	ld.param.u64 %rd3, [c];
	ld.param.u32 %r1, [n];
	mov.u32 %r2, %ctaid.x;
	mov.u32 %r3, %ntid.x;
	mov.u32 %r4, %tid.x;
	mad.lo.s32 %r5, %r2, %r3, %r4;
	setp.ge.u32 %p1, %r5, %r1;
	@%p1 bra done;
	mul.wide.u32 %rd4, %r5, 4;
	add.u64 %rd5, %rd1, %rd4;
	add.u64 %rd6, %rd2, %rd4;
	add.u64 %rd7, %rd3, %rd4;
	ld.global.f32 %f1, [%rd5];
	ld.global.f32 %f2, [%rd6];
	add.f32 %f3, %f1, %f2;
	st.global.f32 [%rd7], %f3;
done:
	ret;
}
`

func load(t testing.TB, c *Context, src string) *Module {
	t.Helper()
	m, log, r := c.LoadModule([]byte(src))
	if r != cuda.Success {
		t.Fatalf("%v: %s", r, log)
	}
	return m.(*Module)
}

// An image that is not PTX is refused in the same way, however short it is.
func TestImages(t *testing.T) {
	_, c := open(t, nil)
	for _, i := range []struct {
		image, log string
		result     cuda.Result
	}{
		{"hello world\x00", "no PTX text", cuda.ErrorInvalidImage},
		{"root:x:0:0:root:/root:/bin/bash\n", "no PTX text", cuda.ErrorInvalidImage},
		{".target sm_75\x00", "PTX text begins with it", cuda.ErrorInvalidImage},
		{"\x7fELF\x02\x01", "machine code", cuda.ErrorNoBinaryForGPU},
		{"// d\xe9but\n.version 7.0\n.target sm_70\n.address_size 64\n", "", cuda.Success},
		{"d\xe9but", "neither", cuda.ErrorInvalidImage},
		{"", "neither", cuda.ErrorInvalidImage},
		{"\x00.version 7.0", "neither", cuda.ErrorInvalidImage},
		{".version\x01", "neither", cuda.ErrorInvalidImage},
		{".version 7.0\n.target sm_999", "sm_999", cuda.ErrorNoBinaryForGPU},
		{header + ".entry k() { .shared .b8 s[200000]; ret; }", "uses 200000 bytes of shared memory", cuda.ErrorInvalidPTX},
	} {
		if _, log, r := c.LoadModule([]byte(i.image)); r != i.result || !strings.Contains(log, i.log) {
			t.Errorf("%q: %v, %s", i.image, r, log)
		}
	}
}

func TestVectorAdd(t *testing.T) {
	_, c := open(t, nil)
	m := load(t, c, vectorAdd+"\x00")
	f := m.Layout().Functions[0]
	if f.Name != "vectorAdd" || f.ParamBytes != 28 || len(f.Params) != 4 || f.Params[3] != (cuda.ParamLayout{Offset: 24, Size: 4}) ||
		f.MaxThreads != 1024 || f.Registers == 0 || f.PTXVersion != 70 || f.BinaryVersion != 75 {
		t.Errorf("%+v", f)
	}
	const n = 100_001
	in := make([]byte, 4*n)
	for i := range n {
		binary.LittleEndian.PutUint32(in[4*i:], math.Float32bits(float32(i)))
	}
	var addr [3]uint64
	var params []byte
	for i := range addr {
		addr[i] = alloc(t, c, 4*n)
		params = binary.LittleEndian.AppendUint64(params, addr[i])
	}
	params = binary.LittleEndian.AppendUint32(params, n)
	upload(t, c, addr[0], in)
	upload(t, c, addr[1], in)
	submit(t, c, c.DefaultStream(), &accel.Launch{Module: m, Grid: [3]uint32{(n + 255) / 256, 1, 1}, Block: [3]uint32{256, 1, 1}, Params: params})
	out := download(t, c, addr[2], 4*n)
	for i := range n {
		if v := math.Float32frombits(binary.LittleEndian.Uint32(out[4*i:])); v != float32(2*i) {
			t.Fatalf("element %d is %g", i, v)
		}
	}
	m.Unload()
	want(t, c.Submit(c.DefaultStream(), launchOf(m, params...), nil), cuda.ErrorInvalidHandle)

	// More threads than the allocation has elements: beyond the margin that may be accessed beside it.
	m = load(t, c, vectorAdd)
	const more = memory.Margin / 2
	binary.LittleEndian.PutUint32(params[24:], n+more)
	w := newWaiter()
	want(t, c.Submit(c.DefaultStream(), &accel.Launch{Module: m, Grid: [3]uint32{(n+more)/256 + 1, 1, 1}, Block: [3]uint32{256, 1, 1}, Params: params}, w.done), cuda.Success)
	want(t, w.wait(t), cuda.ErrorIllegalAddress)
	want(t, c.Err(), cuda.ErrorIllegalAddress)
}

func TestModuleVariables(t *testing.T) {
	d, c := open(t, nil)
	m := load(t, c, header+`
.visible .global .align 4 .u32 counter = 7;
.visible .const .align 8 .f64 table[3] = {0d3FF0000000000000, 0d4000000000000000, 0d4008000000000000};
.visible .entry bump() {
	.reg .b32 %r<3>;
	.reg .b64 %rd<2>;
	mov.u64 %rd1, counter;
	atom.global.add.u32 %r1, [%rd1], 5;
	ret;
}
`)
	g := m.Layout().Globals
	if len(g) != 2 || g[0].Name != "counter" || g[0].Size != 4 || g[1].Name != "table" || g[1].Size != 24 {
		t.Fatalf("%+v", g)
	}
	submit(t, c, c.DefaultStream(), accel.Launch{Module: m, Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{64, 1, 1}})
	if v := binary.LittleEndian.Uint32(download(t, c, g[0].Address, 4)); v != 7+64*5 {
		t.Fatalf("counter is %d", v)
	}
	if v := math.Float64frombits(binary.LittleEndian.Uint64(download(t, c, g[1].Address+16, 8))); v != 3 {
		t.Fatalf("table[2] is %g", v)
	}
	want(t, c.Free(g[0].Address, nil), cuda.ErrorInvalidValue)
	want(t, synchronize(t, c), cuda.Success) // no work ends any more, which unloading would wait for
	m.Unload()
	if n := d.MemoryUsed(); n != 0 {
		t.Fatalf("%d bytes left", n)
	}
}

func TestBadImages(t *testing.T) {
	_, c := open(t, func(c *Config) { c.Memory = 1 << 20 })
	for _, x := range []struct {
		image, log string
		r          cuda.Result
	}{
		{"\x7fELF\x02\x01", "machine code", cuda.ErrorNoBinaryForGPU},
		{"\x00\x01\x02", "", cuda.ErrorInvalidImage},
		{"", "", cuda.ErrorInvalidImage},
		{".version 9.9\n.target sm_70\n.address_size 64\n", "", cuda.ErrorUnsupportedPTXVersion},
		{header + ".visible .entry k() { nonsense.u32 %r1; ret; }", "line 4", cuda.ErrorInvalidPTX},
		{header + ".visible .global .align 4 .b8 big[2000000];", "", cuda.ErrorOutOfMemory},
	} {
		_, log, r := c.LoadModule([]byte(x.image))
		if r != x.r || !strings.Contains(log, x.log) || log == "" {
			t.Errorf("%.40q: %v, %q", x.image, r, log)
		}
	}
	alloc(t, c, 1<<20) // nothing was left behind
}

func TestEndlessPTX(t *testing.T) {
	_, c := open(t, func(c *Config) { c.KernelTimeout = 30e6 })
	m := load(t, c, header+".visible .entry spin() {\nagain:\n\tbra again;\n}\n")
	w := newWaiter()
	want(t, c.Submit(c.DefaultStream(), accel.Launch{Module: m, Grid: [3]uint32{4, 1, 1}, Block: [3]uint32{32, 1, 1}}, w.done), cuda.Success)
	want(t, w.wait(t), cuda.ErrorLaunchTimeout)
}

const readTexture = header + `
.visible .entry readTexture(.param .u64 handle, .param .u64 out)
{
	.reg .b32 %r<6>;
	.reg .f32 %f<4>;
	.reg .b64 %rd<5>;
	ld.param.u64 %rd1, [handle];
	ld.param.u64 %rd2, [out];
	mov.u32 %r1, %tid.x;
	cvt.rn.f32.u32 %f1, %r1;
	add.f32 %f1, %f1, 0f3F000000;
	mov.f32 %f2, 0f3FC00000;
	tex.2d.v4.u32.f32 {%r2, %r3, %r4, %r5}, [%rd1, {%f1, %f2}];
	mul.wide.u32 %rd3, %r1, 4;
	add.u64 %rd4, %rd2, %rd3;
	st.global.u32 [%rd4], %r2;
	ret;
}
`

func TestTextures(t *testing.T) {
	_, c := open(t, nil)
	m := load(t, c, readTexture)
	rows := make([]byte, 4*512)
	for i := range rows {
		rows[i] = byte(i*7 + i>>8)
	}
	a, out := alloc(t, c, uint64(len(rows))), alloc(t, c, 128)
	upload(t, c, a, rows)
	arr, r := c.NewArray(accel.ArrayDesc{Width: 32, Height: 4, Format: formatU8, Channels: 1})
	want(t, r, cuda.Success)
	submit(t, c, c.DefaultStream(), accel.Copy{Dst: accel.End{Array: arr}, Src: accel.End{Host: rows, Pitch: 512}, Width: 32, Height: 4, Depth: 1})
	linear := accel.TextureDesc{Address: a, Width: 32, Height: 4, Pitch: 512, Format: formatU8, Channels: 1, Flags: readAsInteger}
	launch := func(handle uint64) accel.Launch {
		p := binary.LittleEndian.AppendUint64(nil, handle)
		p = binary.LittleEndian.AppendUint64(p, out)
		return accel.Launch{Module: m, Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{32, 1, 1}, Params: p}
	}
	for handle, d := range map[uint64]accel.TextureDesc{5: linear, 6: {Array: arr, Flags: readAsInteger}} {
		tex, r := c.NewTexture(handle, d)
		want(t, r, cuda.Success)
		submit(t, c, c.DefaultStream(), launch(handle))
		tex.Destroy()
		for i, b := range download(t, c, out, 128) {
			if i%4 == 0 && b != rows[512+i/4] {
				t.Fatalf("texture %d, element %d is %d, want %d", handle, i/4, b, rows[512+i/4])
			}
		}
	}
	for _, change := range []func(*accel.TextureDesc){
		func(d *accel.TextureDesc) { d.Address++ },
		func(d *accel.TextureDesc) { d.Pitch = 31 },
		func(d *accel.TextureDesc) { d.Width = 0 },
		func(d *accel.TextureDesc) { d.Width = 1 << 60 },
		func(d *accel.TextureDesc) { d.Channels = 3 },
		func(d *accel.TextureDesc) { d.AddressMode[1] = 9 },
	} {
		d := linear
		change(&d)
		if _, r := c.NewTexture(9, d); r != cuda.ErrorInvalidValue {
			t.Errorf("%+v: %v", d, r)
		}
	}

	// An access to freed memory is a fault, not a crash.
	_, r = c.NewTexture(7, linear)
	want(t, r, cuda.Success)
	want(t, c.Free(a, nil), cuda.Success)
	w := newWaiter()
	want(t, c.Submit(c.DefaultStream(), launch(7), w.done), cuda.Success)
	if r := w.wait(t); r != cuda.ErrorIllegalAddress {
		t.Fatal(r)
	}
}

func BenchmarkEmptyPTX(b *testing.B) {
	_, c := open(b, nil)
	m := load(b, c, header+".visible .entry empty() { ret; }")
	l := accel.Launch{Module: m, Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{32, 1, 1}}
	w := newWaiter()
	b.ReportAllocs()
	for b.Loop() {
		c.Submit(c.DefaultStream(), &l, w.done)
		<-w
	}
}
