package acceltest

import (
	"bytes"
	"sync/atomic"
	"testing"
	"time"

	"pegasus/accel"
	"pegasus/cuda"
)

func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>8)
	}
	return b
}

func testMemory(t *testing.T, b *bench) {
	b.start(Options{})
	seen := map[uint64]bool{}
	for _, n := range []uint64{1, 511, 512, 4096, 1 << 20, 3<<20 + 5} {
		p := b.alloc(n)
		if p == 0 || p%512 != 0 || seen[p] {
			t.Errorf("%d bytes are at %#x", n, p)
		}
		seen[p] = true
		if got := b.download(p, int(n)); !bytes.Equal(got, make([]byte, n)) {
			t.Errorf("new memory of %d bytes is not zero", n)
		}
		b.upload(p, bytes.Repeat([]byte{0xff}, int(n)))
	}
	for p := range seen {
		freed := make(chan struct{})
		b.want(b.ctx.Free(p, func() { close(freed) }), cuda.Success)
		<-freed
		b.want(b.ctx.Free(p, nil), cuda.ErrorInvalidValue)
	}
	for range 3 { // memory of an earlier owner is zeroed
		p := b.alloc(3 << 20)
		if !bytes.Equal(b.download(p, 3<<20), make([]byte, 3<<20)) {
			t.Error("memory that was used before is not zero")
		}
		b.upload(p, bytes.Repeat([]byte{0xee}, 3<<20))
		b.want(b.ctx.Free(p, nil), cuda.Success)
	}
	p := b.alloc(4096)
	b.want(b.ctx.Free(p+512, nil), cuda.ErrorInvalidValue)
	b.want(b.ctx.Free(0, nil), cuda.ErrorInvalidValue)
	_, r := b.ctx.Alloc(0)
	b.want(r, cuda.ErrorInvalidValue)
	for _, n := range []uint64{1 << 45, 1<<64 - 1} {
		_, r = b.ctx.Alloc(n)
		b.want(r, cuda.ErrorOutOfMemory)
	}
	b.want(b.ctx.Err(), cuda.Success)
}

func testQuota(t *testing.T, b *bench) {
	var used atomic.Int64
	const most = 8 << 20
	b.start(Options{Quota: func(delta int64) bool {
		if used.Add(delta) > most {
			used.Add(-delta)
			return false
		}
		return true
	}})
	first := b.alloc(5 << 20)
	_, r := b.ctx.Alloc(5 << 20)
	b.want(r, cuda.ErrorOutOfMemory)
	if n := used.Load(); n < 5<<20 || n > 7<<20 {
		t.Errorf("for 5 MiB the quota has %d bytes", n)
	}
	b.want(b.ctx.Free(first, nil), cuda.Success)
	b.alloc(5 << 20)
	other := b.context()
	_, r = other.Alloc(1 << 20)
	b.want(r, cuda.Success)
	for _, c := range []accel.Context{b.ctx, other} {
		gone := make(chan struct{})
		c.Destroy(func() { close(gone) })
		<-gone
	}
	if n := used.Load(); n != 0 {
		t.Errorf("%d bytes of the quota are not given back", n)
	}
}

func testCopies(t *testing.T, b *bench) {
	b.start(Options{})
	text := pattern(2<<20 + 77)
	p, q := b.alloc(4<<20), b.alloc(4<<20)
	b.upload(p+3, text)
	b.do(linear(at(q+5), at(p+3), len(text)))
	if !bytes.Equal(b.download(q+5, len(text)), text) {
		t.Error("in, within and out makes other bytes")
	}
	if got := b.download(q, 5); !bytes.Equal(got, make([]byte, 5)) {
		t.Errorf("before the target there is % x", got)
	}
	var two [64]byte
	b.do(linear(host(two[:]), host(text[:64]), 64))
	if !bytes.Equal(two[:], text[:64]) {
		t.Error("from host to host")
	}
	for _, w := range []accel.Work{accel.Copy{Dst: at(p), Src: at(q)}, &accel.Copy{Dst: at(1), Src: at(2), Width: 0, Height: 1, Depth: 1}, accel.Fill{Address: p, ElementSize: 1}} {
		a := newAnswer()
		b.want(b.ctx.Submit(b.ctx.DefaultStream(), w, a.done), cuda.Success)
		b.want(b.wait(a), cuda.Success)
	}
}

// testBoxes copies boxes between endpoints of all kinds, and compares the results with a plain model.
func testBoxes(t *testing.T, b *bench) {
	b.start(Options{})
	const width, height, depth = 13, 5, 3
	type shape struct{ pitch, rows uint64 }
	shapes := []shape{{13, 5}, {16, 5}, {37, 9}}
	size := func(s shape) int { return int(s.pitch*s.rows*(depth-1) + s.pitch*(height-1) + width) }
	for _, from := range shapes {
		for _, to := range shapes {
			src, old := pattern(size(from)), bytes.Repeat([]byte{0xa5}, size(to))
			want := bytes.Clone(old)
			for z := range uint64(depth) {
				for y := range uint64(height) {
					copy(want[(z*to.rows+y)*to.pitch:][:width], src[(z*from.rows+y)*from.pitch:][:width])
				}
			}
			p, q := b.alloc(4096), b.alloc(4096)
			box := func(dst, src accel.End) accel.Copy {
				dst.Pitch, dst.Height, src.Pitch, src.Height = to.pitch, to.rows, from.pitch, from.rows
				return accel.Copy{Dst: dst, Src: src, Width: width, Height: height, Depth: depth}
			}
			b.upload(p, src)
			check := func(what string, got []byte) {
				t.Helper()
				if !bytes.Equal(got, want) {
					t.Errorf("%s, %v to %v:\n% x\nwant\n% x", what, from, to, got, want)
				}
			}
			b.upload(q, old)
			b.do(box(at(q), at(p)))
			check("within", b.download(q, len(old)))
			b.upload(q, old)
			b.do(box(at(q), host(src)))
			check("in", b.download(q, len(old)))
			out := bytes.Clone(old)
			b.do(box(host(out), at(p)))
			check("out", out)
			copy(b.shared[4096:], src)
			copy(b.shared[100_000:], old)
			b.do(box(host(b.shared[100_000:100_000+len(old)]), at(p)))
			check("out to shared memory", b.shared[100_000:100_000+len(old)])
			b.upload(q, old)
			b.do(box(at(q), host(b.shared[4096:4096+len(src)])))
			check("in from shared memory", b.download(q, len(old)))
		}
	}
}

// testSharedMemory checks that a copy reads and writes shared memory at its turn in the stream, not at its submission.
func testSharedMemory(t *testing.T, b *bench) {
	b.start(Options{})
	k := b.spinner()
	s := b.stream(1)
	p, q := b.alloc(4096), b.alloc(4096)
	b.upload(p, pattern(4096))
	first, second := b.shared[:4096], b.shared[8192:8192+4096]
	b.submit(s, k.work())
	b.submit(s, linear(host(first), at(p), 4096))
	b.submit(s, linear(host(second), host(first), 4096))
	b.submit(s, linear(at(q), host(second), 4096))
	if !bytes.Equal(first, make([]byte, 4096)) {
		t.Error("a copy is done before its turn")
	}
	k.letGo()
	a := newAnswer()
	s.Synchronize(a.result)
	b.want(b.wait(a), cuda.Success)
	if !bytes.Equal(first, pattern(4096)) || !bytes.Equal(second, pattern(4096)) || !bytes.Equal(b.download(q, 4096), pattern(4096)) {
		t.Error("out, across and in again makes other bytes")
	}
}

func testArrays(t *testing.T, b *bench) {
	b.start(Options{})
	const u8, u32 = 1, 3
	for name, d := range map[string]accel.ArrayDesc{
		"2-D":            {Width: 31, Height: 7, Format: u8, Channels: 4},
		"1-D":            {Width: 64, Format: u32, Channels: 1},
		"3-D":            {Width: 9, Height: 5, Depth: 3, Format: u32, Channels: 2},
		"with a surface": {Width: 16, Height: 16, Format: u8, Channels: 1, Flags: 2},
	} {
		arr, r := b.ctx.NewArray(d)
		b.want(r, cuda.Success)
		element := uint64(d.Channels)
		if d.Format == u32 {
			element *= 4
		}
		row, rows, slices := d.Width*element, max(d.Height, 1), max(d.Depth, 1)
		n := int(row * rows * slices)
		whole := func(e accel.End) accel.End { e.Pitch, e.Height = row, rows; return e }
		out := bytes.Repeat([]byte{1}, n)
		b.do(accel.Copy{Dst: whole(host(out)), Src: accel.End{Array: arr}, Width: row, Height: rows, Depth: slices})
		if !bytes.Equal(out, make([]byte, n)) {
			t.Errorf("%s: a new array is not zero", name)
		}
		b.do(accel.Copy{Dst: accel.End{Array: arr}, Src: whole(host(pattern(n))), Width: row, Height: rows, Depth: slices})
		p := b.alloc(uint64(n))
		b.do(accel.Copy{Dst: whole(at(p)), Src: accel.End{Array: arr}, Width: row, Height: rows, Depth: slices})
		if !bytes.Equal(b.download(p, n), pattern(n)) {
			t.Errorf("%s: by way of the array there are other bytes", name)
		}
		b.do(accel.Copy{Dst: host(out[:element]), Src: accel.End{Array: arr, X: element, Y: rows - 1, Z: slices - 1}, Width: element, Height: 1, Depth: 1})
		from := int((slices-1)*row*rows + (rows-1)*row + element)
		if !bytes.Equal(out[:element], pattern(n)[from:from+int(element)]) {
			t.Errorf("%s: its last row has another second element", name)
		}
		for _, e := range []accel.End{{Array: arr, X: row}, {Array: arr, Y: rows}, {Array: arr, Z: slices}, {Array: arr, X: 1 << 63}} {
			b.want(b.ctx.Submit(b.ctx.DefaultStream(), accel.Copy{Dst: host(out), Src: e, Width: 1, Height: 1, Depth: 1}, nil), cuda.ErrorInvalidValue)
		}
		arr.Destroy()
		arr.Destroy()
		if r := b.ctx.Submit(b.ctx.DefaultStream(), accel.Copy{Dst: host(out), Src: accel.End{Array: arr}, Width: 1, Height: 1, Depth: 1}, nil); r == cuda.Success {
			t.Errorf("%s: a destroyed array is copied from", name)
		}
	}
	for name, d := range map[string]accel.ArrayDesc{
		"no width": {Format: u8, Channels: 1}, "three channels": {Width: 4, Format: u8, Channels: 3}, "no format": {Width: 4, Channels: 1},
		"huge": {Width: 1 << 62, Height: 1 << 62, Format: u32, Channels: 4},
	} {
		if _, r := b.ctx.NewArray(d); r == cuda.Success {
			t.Errorf("an array with %s is made", name)
		}
	}
	b.want(b.sync(), cuda.Success)
}

func testFills(t *testing.T, b *bench) {
	b.start(Options{})
	p := b.alloc(4096)
	b.do(accel.Fill{Address: p + 1, Width: 5, Height: 1, Value: 0x1ff, ElementSize: 1})
	b.do(accel.Fill{Address: p + 16, Width: 3, Height: 1, Value: 0x10203, ElementSize: 2})
	b.do(&accel.Fill{Address: p + 32, Width: 2, Height: 3, Pitch: 16, Value: 0x01020304, ElementSize: 4})
	b.do(&accel.Fill{Address: p + 128, Width: 3, Height: 2, Pitch: 8, Value: 0x0a0b, ElementSize: 2})
	b.do(&accel.Fill{Address: p + 160, Width: 3, Height: 2, Pitch: 5, Value: 9, ElementSize: 1})
	want := make([]byte, 170)
	copy(want[1:], "\xff\xff\xff\xff\xff")
	copy(want[16:], "\x03\x02\x03\x02\x03\x02")
	for y := range 3 {
		copy(want[32+16*y:], "\x04\x03\x02\x01\x04\x03\x02\x01")
	}
	for y := range 2 {
		copy(want[128+8*y:], "\x0b\x0a\x0b\x0a\x0b\x0a")
		copy(want[160+5*y:], "\x09\x09\x09")
	}
	if got := b.download(p, len(want)); !bytes.Equal(got, want) {
		t.Errorf("after fills there is\n% x\nwant\n% x", got, want)
	}
}

// testHostileWork checks that work beyond the guest's memory is rejected by Submit and changes nothing.
func testHostileWork(t *testing.T, b *bench) {
	b.start(Options{})
	a, s := b.alloc(4096), b.ctx.DefaultStream()
	freed := b.alloc(4096)
	done := make(chan struct{})
	b.want(b.ctx.Free(freed, func() { close(done) }), cuda.Success)
	<-done
	big := uint64(1) << 63
	box := func(dst, src accel.End, w, h, d uint64) accel.Copy {
		return accel.Copy{Dst: dst, Src: src, Width: w, Height: h, Depth: d}
	}
	for name, w := range map[string]accel.Work{
		"past the end":       linear(at(a+4000), at(a), 97),
		"before the start":   linear(at(a-1), at(a), 2),
		"no memory":          linear(at(4096), at(a), 1),
		"freed memory":       linear(at(freed), at(a), 1),
		"huge width":         box(at(a), at(a), ^uint64(0), 1, 1),
		"overflowing box":    box(accel.End{Address: a, Pitch: big}, accel.End{Address: a, Pitch: big}, 1, 3, 1),
		"overflowing slices": box(accel.End{Address: a, Pitch: 1 << 33, Height: 1 << 33}, accel.End{Address: a, Pitch: 1, Height: 1}, 1, 1, 2),
		"pitch below width":  box(accel.End{Address: a, Pitch: 3}, accel.End{Address: a, Pitch: 4}, 4, 2, 1),
		"slices that meet":   box(accel.End{Address: a, Pitch: 4, Height: 1}, accel.End{Address: a, Pitch: 4, Height: 2}, 4, 2, 2),
		"short host memory":  linear(at(a), host(make([]byte, 3)), 4),
		"short target":       linear(host(make([]byte, 3)), at(a), 4),
		"element of 3":       accel.Fill{Address: a, Width: 1, Height: 1, ElementSize: 3},
		"misaligned fill":    accel.Fill{Address: a + 1, Width: 1, Height: 1, ElementSize: 2},
		"misaligned pitch":   accel.Fill{Address: a, Width: 1, Height: 2, Pitch: 3, ElementSize: 2},
		"wide fill":          accel.Fill{Address: a, Width: big, Height: 1, ElementSize: 4},
		"tall fill":          accel.Fill{Address: a, Width: 1, Height: big, Pitch: 1 << 20, ElementSize: 4},
		"fill of no memory":  accel.Fill{Address: 64, Width: 1, Height: 1, ElementSize: 1},
		"fill past the end":  accel.Fill{Address: a + 4092, Width: 2, Height: 1, ElementSize: 4},
	} {
		if r := b.ctx.Submit(s, w, func(cuda.Result, accel.Usage) { t.Errorf("%s: refused, and told of its end", name) }); r != cuda.ErrorInvalidValue {
			t.Errorf("%s: %v", name, r)
		}
	}
	b.want(b.sync(), cuda.Success)
	b.want(b.ctx.Err(), cuda.Success)
	time.Sleep(time.Millisecond)
}

// stranger is a handle that belongs to no context.
type stranger struct {
	accel.Stream
	accel.Array
}

func (stranger) Destroy() {}

// testStrangers checks that handles of another context, or of none, are rejected.
func testStrangers(t *testing.T, b *bench) {
	b.start(Options{})
	other := b.context()
	m := b.module(kernels)
	p := b.alloc(64)
	theirs, r := other.NewStream(0, 0)
	b.want(r, cuda.Success)
	e, r := other.NewEvent(0)
	b.want(r, cuda.Success)
	arr, r := other.NewArray(accel.ArrayDesc{Width: 8, Format: 1, Channels: 1})
	b.want(r, cuda.Success)
	gone := b.stream(0)
	gone.Destroy()
	fill := accel.Fill{Address: p, Width: 1, Height: 1, ElementSize: 1}
	b.want(b.ctx.Submit(theirs, fill, nil), cuda.ErrorInvalidHandle)
	b.want(b.ctx.Submit(nil, fill, nil), cuda.ErrorInvalidHandle)
	b.want(b.ctx.Submit(stranger{}, fill, nil), cuda.ErrorInvalidHandle)
	b.want(b.ctx.Submit(gone, fill, nil), cuda.ErrorInvalidHandle)
	b.want(b.ctx.Submit(b.ctx.DefaultStream(), accel.Record{Event: e}, nil), cuda.ErrorInvalidHandle)
	b.want(b.ctx.Submit(b.ctx.DefaultStream(), accel.Record{}, nil), cuda.ErrorInvalidHandle)
	b.want(b.ctx.Submit(b.ctx.DefaultStream(), accel.WaitEvent{}, nil), cuda.ErrorInvalidHandle)
	b.want(b.ctx.Submit(b.ctx.DefaultStream(), accel.HostFunc{}, nil), cuda.ErrorInvalidValue)
	b.want(other.Submit(other.DefaultStream(), launch(m, "bump", nil), nil), cuda.ErrorInvalidHandle)
	b.want(b.ctx.Submit(b.ctx.DefaultStream(), accel.Copy{Dst: at(p), Src: accel.End{Array: arr}, Width: 1, Height: 1, Depth: 1}, nil), cuda.ErrorInvalidValue)
	b.want(b.ctx.Submit(b.ctx.DefaultStream(), accel.Copy{Dst: at(p), Src: accel.End{Array: stranger{}}, Width: 1, Height: 1, Depth: 1}, nil), cuda.ErrorInvalidValue)
	b.want(other.Free(p, nil), cuda.ErrorInvalidValue)
	b.want(b.sync(), cuda.Success)
}
