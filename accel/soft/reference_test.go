package soft

import (
	"encoding/binary"
	"testing"

	"pegasus/accel"
	"pegasus/cuda"
)

const readReference = header + `
.global .texref line;
.global .surfref board;
.global .u32 plain;
.visible .entry readReference(.param .u64 out)
{
	.reg .b32 %r<6>;
	.reg .b64 %rd<3>;
	ld.param.u64 %rd1, [out];
	mov.u32 %r1, %tid.x;
	tex.1d.v4.u32.s32 {%r2, %r3, %r4, %r5}, [line, {%r1}];
	mul.wide.u32 %rd2, %r1, 4;
	add.u64 %rd1, %rd1, %rd2;
	st.global.u32 [%rd1], %r2;
	ret;
}
`

// A reference stands for the object bound to it when a kernel was launched; an object of the wrong kind is refused.
func TestReferences(t *testing.T) {
	_, c := open(t, nil)
	m := load(t, c, readReference)
	address := map[string]uint64{}
	for _, g := range m.Layout().Globals {
		address[g.Name] = g.Address
		if want := map[string]cuda.GlobalKind{"line": cuda.GlobalTexture, "board": cuda.GlobalSurface}[g.Name]; g.Kind != want {
			t.Errorf("%s is of kind %d, want %d", g.Name, g.Kind, want)
		}
	}
	bind := m.Bind
	out := alloc(t, c, 3*128)
	launch := func(at uint64) accel.Launch {
		return accel.Launch{Module: m, Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{32, 1, 1}, Params: binary.LittleEndian.AppendUint64(nil, at)}
	}
	var textures [2]accel.Texture
	for i := range textures {
		a := alloc(t, c, 512)
		upload(t, c, a, []byte{byte(10 + i), byte(20 + i)})
		var r cuda.Result
		textures[i], r = c.NewTexture(uint64(5+i), accel.TextureDesc{Address: a, Width: 2, Format: formatU8, Channels: 1, Flags: readAsInteger})
		want(t, r, cuda.Success)
	}
	array, r := c.NewArray(accel.ArrayDesc{Width: 4, Height: 4, Format: formatU32, Channels: 1, Flags: arraySurface})
	want(t, r, cuda.Success)
	surface, r := c.NewTexture(9, accel.TextureDesc{Surface: true, Array: array})
	want(t, r, cuda.Success)

	want(t, bind(address["board"], textures[0]), cuda.ErrorInvalidHandle)
	want(t, bind(address["line"], surface), cuda.ErrorInvalidHandle)
	want(t, bind(address["plain"], textures[0]), cuda.ErrorInvalidHandle)
	want(t, bind(address["line"]+1, textures[0]), cuda.ErrorInvalidHandle)
	want(t, bind(address["board"], surface), cuda.Success)

	ended := newWaiter()
	want(t, bind(address["line"], textures[0]), cuda.Success)
	want(t, c.Submit(c.DefaultStream(), launch(out), ended.done), cuda.Success)
	want(t, bind(address["line"], textures[1]), cuda.Success)
	textures[0].Destroy()
	want(t, ended.wait(t), cuda.Success)
	submit(t, c, c.DefaultStream(), launch(out+128))
	got := download(t, c, out, 256)
	for at, want := range map[int]byte{0: 10, 4: 20, 8: 0, 128: 11, 132: 21, 136: 0} {
		if got[at] != want {
			t.Errorf("byte %d is %d, want %d", at, got[at], want)
		}
	}
	want(t, bind(address["line"], nil), cuda.Success)
	ended = newWaiter()
	want(t, c.Submit(c.DefaultStream(), launch(out), ended.done), cuda.Success)
	want(t, ended.wait(t), cuda.ErrorIllegalAddress)
}

// A texture or surface of an invalid resource is refused when it is made.
func TestTextureResources(t *testing.T) {
	_, c := open(t, nil)
	array := func(d accel.ArrayDesc) accel.Array {
		a, r := c.NewArray(d)
		want(t, r, cuda.Success)
		return a
	}
	plain := array(accel.ArrayDesc{Width: 4, Height: 4, Format: formatHalf, Channels: 2})
	_, r := c.NewTexture(1, accel.TextureDesc{Array: plain})
	want(t, r, cuda.Success)
	_, r = c.NewTexture(3, accel.TextureDesc{Array: plain, Surface: true}) // which needs no flag of the array's
	want(t, r, cuda.Success)
	_, r = c.NewTexture(2, accel.TextureDesc{Address: alloc(t, c, 64), Width: 4, Format: formatU8, Channels: 1, Surface: true})
	want(t, r, cuda.ErrorInvalidValue)
	_, r = c.NewTexture(2, accel.TextureDesc{Array: plain, Flags: textureSRGB})
	want(t, r, cuda.ErrorNotSupported)
	for _, d := range []accel.ArrayDesc{
		{Width: 4, Flags: arrayLayered}, {Width: 4, Height: 4, Depth: 5, Flags: arrayCube}, {Width: 4, Height: 3, Depth: 6, Flags: arrayCube},
		{Width: 4, Height: 4, Depth: 8, Flags: arrayCube | arrayLayered}, {Width: 4, Depth: 2},
	} {
		d.Format, d.Channels = formatU8, 1
		if _, r := c.NewArray(d); r != cuda.ErrorInvalidValue {
			t.Errorf("%+v: %v", d, r)
		}
	}
	array(accel.ArrayDesc{Width: 4, Height: 4, Depth: 12, Format: formatU8, Channels: 1, Flags: arrayCube | arrayLayered})
	array(accel.ArrayDesc{Width: 4, Depth: 3, Format: formatU8, Channels: 1, Flags: arrayLayered})
}
