package acceltest

import (
	"bytes"
	"encoding/binary"
	"sync/atomic"
	"testing"
	"time"

	"pegasus/accel"
	"pegasus/cuda"
)

// mapper returns the device's interface for mapping memory, or skips the test.
func (b *bench) mapper() accel.Mapper {
	b.Helper()
	m := b.dev.Capabilities().Mapping
	if m == nil {
		b.Skip("the device maps no memory")
	}
	return m
}

func (b *bench) created(m accel.Mapper, n uint64) accel.Memory {
	b.Helper()
	mem, r := m.CreateMemory(n)
	b.want(r, cuda.Success)
	return mem
}

func (b *bench) reserved(m accel.Mapper, n uint64) uint64 {
	b.Helper()
	at, r := m.ReserveRange(n, 0, 0)
	b.want(r, cuda.Success)
	return at
}

// testMapping checks that work of any kind may cross adjacent mappings, that memory can be mapped at two addresses, and
// that it keeps its content.
func testMapping(t *testing.T, b *bench) {
	b.start(Options{})
	m := b.mapper()
	g := m.MapGranule()
	base := b.reserved(m, 8*g)
	size, offset := 2*g, g // its second half
	if b.traits.Whole {
		size, offset = g, 0
	}
	one, two := b.created(m, size), b.created(m, g)
	b.want(m.Map(base+g, g, offset, one), cuda.Success)
	b.want(m.Map(base+2*g, g, 0, two), cuda.Success)
	b.want(m.SetAccess(base+g, 2*g, accel.ReadWrite), cuda.Success)
	if !bytes.Equal(b.download(base+g, int(2*g)), make([]byte, 2*g)) {
		t.Error("new memory is not zero")
	}
	text := pattern(10_000)
	b.upload(base+2*g-5000, text)
	if !bytes.Equal(b.download(base+2*g-5000, len(text)), text) {
		t.Error("across the seam there are other bytes")
	}
	b.do(accel.Fill{Address: base + 2*g - 8, Width: 4, Height: 1, Value: 7, ElementSize: 4})
	k := b.module(kernels)
	add := launch(k, "add", binary.LittleEndian.AppendUint32(words64(base+2*g-8, base+2*g-8), 5))
	add.Block[0] = 4
	b.do(add)
	if got := b.download(base+2*g-8, 16); !bytes.Equal(got, bytes.Repeat([]byte{12, 0, 0, 0}, 4)) {
		t.Errorf("a kernel across the seam left % x", got)
	}
	b.want(m.Map(base+5*g, g, 0, two), cuda.Success)
	b.want(m.SetAccess(base+5*g, g, accel.ReadWrite), cuda.Success)
	if got := b.download(base+5*g, 8); !bytes.Equal(got, bytes.Repeat([]byte{12, 0, 0, 0}, 2)) {
		t.Errorf("at its second place it is % x", got)
	}
	one.Release()
	two.Release()
	b.want(m.Unmap(base+g, 2*g), cuda.Success)
	if r := b.ctx.Submit(b.ctx.DefaultStream(), accel.Fill{Address: base + g, Width: 1, Height: 1, ElementSize: 1}, nil); r != cuda.ErrorInvalidValue {
		t.Errorf("a fill where nothing is mapped any more: %v", r)
	}
	if got := b.download(base+5*g, 4); got[0] != 12 {
		t.Errorf("given up, but mapped, it is % x", got)
	}
	b.want(m.FreeRange(base), cuda.ErrorInvalidValue)
	b.want(m.Unmap(base+5*g, g), cuda.Success)
	b.want(m.FreeRange(base), cuda.Success)
	b.want(b.sync(), cuda.Success)
}

// testHostileMapping checks that invalid calls are rejected and change nothing.
func testHostileMapping(t *testing.T, b *bench) {
	b.start(Options{})
	m := b.mapper()
	g := m.MapGranule()
	plain := b.alloc(4 * g)
	base := b.reserved(m, 4*g)
	mem := b.created(m, 2*g)
	defer mem.Release()
	const bad = cuda.ErrorInvalidValue
	for _, n := range []uint64{0, 1, g - 1, g + 4096} {
		if _, r := m.CreateMemory(n); r != bad {
			t.Errorf("memory of %d bytes: %v", n, r)
		}
		if _, r := m.ReserveRange(n, 0, 0); r != bad {
			t.Errorf("a range of %d bytes: %v", n, r)
		}
	}
	for _, n := range []uint64{1 << 50, -g} {
		if _, r := m.ReserveRange(n, 0, 0); r == cuda.Success {
			t.Errorf("a range of %d bytes is reserved", n)
		}
		if _, r := m.CreateMemory(n); r == cuda.Success {
			t.Errorf("memory of %d bytes is made", n)
		}
	}
	if _, r := m.ReserveRange(g, 3*g, 0); r == cuda.Success {
		t.Error("a range with an alignment of no power of two is reserved")
	}
	for _, c := range []struct{ at, n, offset uint64 }{
		{base, 0, 0}, {base, 3 * g, 0}, {base, 2 * g, g}, {base, g, 2 * g}, {base, g, -g}, {base + 4096, g, 0}, {base, g + 4096, 0}, {base, g, 4096},
		{base + 3*g, 2 * g, 0}, {base + 4*g, g, 0}, {base - g, g, 0}, {0, g, 0}, {plain, g, 0}, {-g, g, 0}, {base, -g, 0},
	} {
		b.want(m.Map(c.at, c.n, c.offset, mem), bad)
	}
	b.want(m.Map(base, g, 0, nil), bad)
	b.want(m.Map(base+g, 2*g, 0, mem), cuda.Success)
	b.want(m.Map(base+g, g, 0, mem), bad)
	b.want(m.Map(base, 2*g, 0, mem), bad)
	b.want(m.Map(base+2*g, 2*g, 0, mem), bad)
	for _, c := range []struct{ at, n uint64 }{{base, g}, {base + g, g}, {base, 4 * g}, {base + 2*g, g}, {base + g, 0}, {plain, g}, {base + g, -g}, {0, 0}} {
		b.want(m.SetAccess(c.at, c.n, accel.ReadWrite), bad)
		b.want(m.Unmap(c.at, c.n), bad)
	}
	if r := b.ctx.Submit(b.ctx.DefaultStream(), accel.Fill{Address: base + g, Width: 1, Height: 1, ElementSize: 1}, nil); r != bad {
		t.Errorf("a fill before it is accessible: %v", r)
	}
	b.want(m.SetAccess(base+g, 2*g, accel.ReadWrite), cuda.Success)
	for _, at := range []uint64{base, base + g, base + 2*g} {
		b.want(b.ctx.Free(at, nil), bad)
	}
	b.want(m.FreeRange(base+g), bad)
	b.want(m.FreeRange(plain), bad)
	b.want(m.SetAccess(base+g, 2*g, accel.NoAccess), cuda.Success)
	if r := b.ctx.Submit(b.ctx.DefaultStream(), accel.Fill{Address: base + g, Width: 1, Height: 1, ElementSize: 1}, nil); r != bad {
		t.Errorf("a fill when it is accessible no more: %v", r)
	}
	b.want(m.Unmap(base+g, 2*g), cuda.Success)
	b.want(m.FreeRange(base), cuda.Success)
	b.want(m.FreeRange(base), bad)
	b.upload(plain, pattern(4096))
	b.want(b.sync(), cuda.Success)
}

// testMappingQuota checks that memory counts against the quota from its creation until it is released and unmapped.
func testMappingQuota(t *testing.T, b *bench) {
	var used atomic.Int64
	b.start(Options{Quota: func(delta int64) bool {
		if used.Add(delta) > 16<<20 {
			used.Add(-delta)
			return false
		}
		return true
	}})
	m := b.mapper()
	g := m.MapGranule()
	before := used.Load()
	base := b.reserved(m, 8*g)
	if used.Load() != before {
		t.Error("addresses count")
	}
	mem := b.created(m, 2*g)
	if n := used.Load() - before; n != int64(2*g) {
		t.Errorf("%d bytes count for %d", n, 2*g)
	}
	if _, r := m.CreateMemory((16 << 20) / g * g); r != cuda.ErrorOutOfMemory {
		t.Errorf("more than the quota has: %v", r)
	}
	if b.traits.Whole {
		b.want(m.Map(base, g, 0, mem), cuda.ErrorNotSupported)
		b.want(m.Map(base, 2*g, 0, mem), cuda.Success)
		mem.Release()
		b.want(m.Unmap(base, 2*g), cuda.Success)
	} else {
		b.want(m.Map(base, g, 0, mem), cuda.Success)
		b.want(m.Map(base+g, g, g, mem), cuda.Success)
		mem.Release()
		b.want(m.Unmap(base, g), cuda.Success)
		if n := used.Load() - before; n != int64(2*g) {
			t.Errorf("while a half is mapped, %d bytes count", n)
		}
		b.want(m.SetAccess(base+g, g, accel.ReadWrite), cuda.Success)
		b.upload(base+g, pattern(4096))
		b.want(m.Unmap(base+g, g), cuda.Success)
	}
	if n := used.Load() - before; n != 0 {
		t.Errorf("when it has gone, %d bytes count", n)
	}
	for range 3 { // memory of an earlier owner is zeroed
		mem = b.created(m, g)
		b.want(m.Map(base, g, 0, mem), cuda.Success)
		b.want(m.SetAccess(base, g, accel.ReadWrite), cuda.Success)
		if !bytes.Equal(b.download(base, int(g)), make([]byte, g)) {
			t.Error("memory that was used before is not zero")
		}
		b.upload(base, bytes.Repeat([]byte{0xee}, int(g)))
		mem.Release()
		b.want(m.Unmap(base, g), cuda.Success)
	}
}

// testValues checks that a stream waits for the value of a word, with every kind of writer, and that other streams
// continue meanwhile.
func testValues(t *testing.T, b *bench) {
	b.start(Options{})
	words := b.dev.Capabilities().StreamWords
	if words.Bits == 0 {
		t.Skip("the device waits for no values")
	}
	p := b.alloc(4096)
	s, other := b.stream(1), b.stream(1)
	ends := func(wait, write accel.Work) {
		t.Helper()
		waited, written := newAnswer(), newAnswer()
		b.want(b.ctx.Submit(s, wait, waited.done), cuda.Success)
		select {
		case r := <-waited:
			t.Errorf("%+v ended early: %v", wait, r)
		case <-time.After(20 * time.Millisecond):
		}
		b.want(b.ctx.Submit(other, write, written.done), cuda.Success)
		b.want(b.wait(written), cuda.Success)
		b.want(b.wait(waited), cuda.Success)
	}
	ends(accel.WaitValue{Address: p, Value: 3, Bytes: 4, Condition: accel.AtLeast}, accel.WriteValue{Address: p, Value: 5, Bytes: 4})
	ends(accel.WaitValue{Address: p, Value: 9, Bytes: 4, Condition: accel.Equal}, linear(at(p), host([]byte{9, 0, 0, 0}), 4))
	ends(accel.WaitValue{Address: p, Value: 2, Bytes: 4, Condition: accel.AnyBit}, accel.Fill{Address: p, Width: 1, Height: 1, Value: 7, ElementSize: 4})
	count := launch(b.module(kernels), "count", binary.LittleEndian.AppendUint32(words64(p), 1000))
	ends(accel.WaitValue{Address: p, Value: 1000, Bytes: 4, Condition: accel.Equal}, count)
	if words.Bits == 64 {
		ends(accel.WaitValue{Address: p + 8, Value: 1 << 40, Bytes: 8, Condition: accel.AtLeast}, accel.WriteValue{Address: p + 8, Value: 1<<40 + 1, Bytes: 8})
	}
	if words.Nor {
		b.do(accel.Fill{Address: p + 16, Width: 4, Height: 1, Value: 0xff, ElementSize: 1})
		ends(accel.WaitValue{Address: p + 16, Value: 0, Bytes: 4, Condition: accel.NorBit}, accel.WriteValue{Address: p + 16, Value: 0xfffffffe, Bytes: 4})
	}
	if got := b.download(p, 4); binary.LittleEndian.Uint32(got) != 1000 {
		t.Errorf("the word is % x", got)
	}
	for _, w := range []accel.Work{
		accel.WaitValue{Address: p + 2, Bytes: 4}, accel.WriteValue{Address: p + 4, Bytes: 8}, accel.WriteValue{Address: p, Bytes: 2},
		accel.WaitValue{Address: 4096, Bytes: 4}, accel.WriteValue{Address: 4096, Bytes: 4}, accel.WaitValue{Address: p, Bytes: 4, Condition: 4},
	} {
		b.want(b.ctx.Submit(s, w, nil), cuda.ErrorInvalidValue)
	}
	// A wait for a value that is never written ends with its context.
	never := newAnswer()
	b.want(b.ctx.Submit(s, accel.WaitValue{Address: p, Value: 77, Bytes: 4, Condition: accel.Equal}, never.done), cuda.Success)
	gone := newAnswer()
	b.ctx.Destroy(func() { gone.result(cuda.Success) })
	b.want(b.wait(gone), cuda.Success)
	if r := b.wait(never); r == cuda.Success {
		t.Error("a wait that was cut short ended well")
	}
}
