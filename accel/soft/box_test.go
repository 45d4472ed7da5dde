package soft

import (
	"bytes"
	"testing"

	"pegasus/accel"
	"pegasus/cuda"
)

// Copies of boxes between all kinds of ends have the same result as one that moves byte by byte.
func TestBoxes(t *testing.T) {
	r := seed(t)
	_, c := open(t, nil)
	for range 300 {
		width, height, depth := 1+r.Uint64N(40), 1+r.Uint64N(6), 1+r.Uint64N(4)
		var ends [2]accel.End
		var model [2][]byte // content in linear order of pitch and height
		var begin, pitch, slice [2]uint64
		for i := range ends {
			e := &ends[i]
			x, y, z := r.Uint64N(8), r.Uint64N(3), r.Uint64N(3)
			pitch[i] = x + width + r.Uint64N(9)
			rows := y + height + r.Uint64N(3)
			slices := z + depth + r.Uint64N(2)
			slice[i] = pitch[i] * rows
			begin[i] = z*slice[i] + y*pitch[i] + x
			model[i] = make([]byte, slice[i]*slices)
			for k := range model[i] {
				model[i][k] = byte(r.Uint32())
			}
			e.Pitch, e.Height = pitch[i], rows
			switch r.IntN(3) {
			case 0:
				e.Host = bytes.Clone(model[i])[begin[i]:]
			case 1:
				a := alloc(t, c, uint64(len(model[i])))
				upload(t, c, a, model[i])
				e.Address = a + begin[i]
			case 2:
				a, res := c.NewArray(accel.ArrayDesc{Width: pitch[i], Height: rows, Depth: slices, Format: formatU8, Channels: 1})
				want(t, res, cuda.Success)
				*e = accel.End{Array: a, X: x, Y: y, Z: z}
				whole := accel.Copy{
					Dst: accel.End{Array: a}, Src: accel.End{Host: model[i], Pitch: pitch[i], Height: rows},
					Width: pitch[i], Height: rows, Depth: slices,
				}
				submit(t, c, c.DefaultStream(), whole)
			}
		}
		submit(t, c, c.DefaultStream(), accel.Copy{Dst: ends[0], Src: ends[1], Width: width, Height: height, Depth: depth})
		for z := range depth {
			for y := range height {
				to, from := begin[0]+z*slice[0]+y*pitch[0], begin[1]+z*slice[1]+y*pitch[1]
				copy(model[0][to:to+width], model[1][from:from+width])
			}
		}
		got := make([]byte, len(model[0]))
		switch e := ends[0]; {
		case e.Host != nil:
			want(t, synchronize(t, c), cuda.Success)
			copy(got, model[0][:begin[0]])
			copy(got[begin[0]:], e.Host)
		case e.Array != nil:
			a := e.Array.(*Array)
			submit(t, c, c.DefaultStream(), accel.Copy{
				Src: accel.End{Array: a}, Dst: accel.End{Host: got, Pitch: pitch[0], Height: slice[0] / pitch[0]},
				Width: pitch[0], Height: a.rows, Depth: a.slices,
			})
			want(t, synchronize(t, c), cuda.Success)
		default:
			got = download(t, c, e.Address-begin[0], len(got))
		}
		if !bytes.Equal(got, model[0]) {
			t.Fatalf("%d×%d×%d from %+v to %+v", width, height, depth, ends[1], ends[0])
		}
		for _, e := range ends {
			if e.Array != nil {
				e.Array.Destroy()
			}
		}
	}
}

func TestArrayBounds(t *testing.T) {
	d, c := open(t, nil)
	a, r := c.NewArray(accel.ArrayDesc{Width: 10, Height: 4, Format: formatFloat, Channels: 2})
	want(t, r, cuda.Success)
	host := make([]byte, 4096)
	for name, cp := range map[string]accel.Copy{
		"x":        {Dst: accel.End{Array: a, X: 1}, Src: accel.End{Host: host, Pitch: 80}, Width: 80, Height: 4, Depth: 1},
		"y":        {Dst: accel.End{Array: a, Y: 1}, Src: accel.End{Host: host, Pitch: 80}, Width: 80, Height: 4, Depth: 1},
		"z":        {Dst: accel.End{Array: a, Z: 1}, Src: accel.End{Host: host, Pitch: 80}, Width: 80, Height: 4, Depth: 1},
		"overflow": {Dst: accel.End{Array: a, X: ^uint64(0) - 10}, Src: accel.End{Host: host, Pitch: 80}, Width: 80, Height: 1, Depth: 1},
	} {
		if r := c.Submit(c.DefaultStream(), cp, nil); r != cuda.ErrorInvalidValue {
			t.Errorf("%s: %v", name, r)
		}
	}
	arr := a.(*Array)
	if _, ok := d.space.Find(arr.address); ok {
		t.Error("kernels can find an array's memory")
	}
	a.Destroy()
	a.Destroy()
	want(t, c.Submit(c.DefaultStream(), accel.Copy{Dst: accel.End{Array: a}, Src: accel.End{Host: host}, Width: 1, Height: 1, Depth: 1}, nil), cuda.ErrorInvalidValue)
	if n := d.MemoryUsed(); n != 0 {
		t.Errorf("%d bytes left", n)
	}
	for _, bad := range []accel.ArrayDesc{
		{}, {Width: 1, Format: formatU8, Channels: 3}, {Width: 1, Format: 99, Channels: 1},
		{Width: 1, Depth: 2, Format: formatU8, Channels: 1}, {Width: 1 << 40, Format: formatU8, Channels: 1},
	} {
		if _, r := c.NewArray(bad); r != cuda.ErrorInvalidValue {
			t.Errorf("%+v: %v", bad, r)
		}
	}
	_, r = c.NewArray(accel.ArrayDesc{Width: maxArrayWidth, Height: maxArrayHeight, Depth: maxArrayDepth, Format: formatFloat, Channels: 4})
	want(t, r, cuda.ErrorOutOfMemory)
}
