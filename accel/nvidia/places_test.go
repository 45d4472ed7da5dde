//go:build cgo

package nvidia

import (
	"encoding/binary"
	"testing"

	"pegasus/accel"
	"pegasus/cuda"
)

// peek is PTX of a kernel that copies a word: *to = *from.
const peek = ".version 6.0\n.target sm_50\n.address_size 64\n.visible .entry peek(.param .u64 to, .param .u64 from)\n{\n" +
	".reg .b64 %a, %b;\n.reg .b32 %v;\nld.param.u64 %a, [to];\nld.param.u64 %b, [from];\nld.global.u32 %v, [%b];\nst.global.u32 [%a], %v;\nret;\n}\n"

// The memory beside a small allocation holds no other process's data either: a kernel can access all of a page.
func TestPlacesBeside(t *testing.T) {
	d := openDevice(t, nil)
	if _, ok := d.store.(*mapped); !ok {
		t.Skip("this driver doesn't map memory by pages")
	}
	x, r := d.NewContext(0)
	if r != cuda.Success {
		t.Fatal(r)
	}
	c := x.(*Context)
	m, log, r := c.LoadModule([]byte(peek))
	if r != cuda.Success {
		t.Fatal(r, log)
	}
	at, r := c.Alloc(512)
	if r != cuda.Success {
		t.Fatal(r)
	}
	for _, beyond := range []uint64{512, 1 << 20, 2<<20 - 4} {
		params := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, at), at+beyond)
		if r := tried(t, c, accel.Launch{Module: m, Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{1, 1, 1}, Params: params}); r != cuda.Success {
			t.Fatalf("%d bytes beyond: %v", beyond, r)
		}
		got := make([]byte, 4)
		if r := tried(t, c, accel.Copy{Dst: accel.End{Host: got}, Src: accel.End{Address: at}, Width: 4, Height: 1, Depth: 1}); r != cuda.Success {
			t.Fatal(r)
		}
		if n := binary.LittleEndian.Uint32(got); n != 0 {
			t.Errorf("%d bytes beyond an allocation is %#x", beyond, n)
		}
	}
}

// Pages that small allocations share are accounted for as long as one of those exists, in any arrangement.
func TestPlacesCount(t *testing.T) {
	const most = 8 << 20
	d, used := counted(t, most)
	c := contextOf(t, d)
	base := used.Load()
	m := d.mapper()
	alloc := func(n uint64) uint64 {
		t.Helper()
		at, r := c.Alloc(n)
		if r != cuda.Success {
			t.Fatal(r)
		}
		return at
	}
	first, second := alloc(1<<20-512), alloc(1<<20-512) // a page but for 1 KiB
	pins := []uint64{alloc(512), alloc(512)}
	for _, at := range []uint64{first, second} {
		if r := c.Free(at, nil); r != cuda.Success {
			t.Fatal(r)
		}
	}
	if got := used.Load() - base; got != 2<<20 || len(m.blocks) != 1 {
		t.Errorf("%d bytes of %d pages count", got, len(m.blocks))
	}
	large := alloc(3 << 20) // two pages
	if _, r := c.Alloc(4 << 20); r != cuda.ErrorOutOfMemory {
		t.Error(r)
	}
	for _, at := range append(pins, large) {
		if r := c.Free(at, nil); r != cuda.Success {
			t.Fatal(r)
		}
	}
	if got := used.Load() - base; got != 0 || len(m.blocks) != 0 {
		t.Errorf("in the end %d bytes of %d pages count", got, len(m.blocks))
	}
}
