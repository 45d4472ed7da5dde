package callbuf

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// A device has no size that extents could be beyond.
func TestCheckFile(t *testing.T) {
	parts := Extents{{Offset: 1 << 40, Bytes: 8192}, {Offset: 0, Bytes: 4096}}
	device, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer device.Close()
	file, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := file.Truncate(12288); err != nil {
		t.Fatal(err)
	}
	if err := parts.CheckFile(12288, device); err != nil {
		t.Errorf("device: %v", err)
	}
	if err := parts.CheckFile(12288, file); err == nil {
		t.Error("beyond a file's end")
	}
	if err := (Extents{{Offset: 1<<63 - 4096, Bytes: 8192}}).CheckFile(8192, device); err == nil {
		t.Error("beyond what a file can have")
	}
}

func TestExtents(t *testing.T) {
	e := Extents{{8192, 4096}, {0, 8192}, {65536, 4096}}
	if e.Bytes() != 16384 || e.Check(16384, 1<<20) != nil {
		t.Errorf("%v: %d bytes, %v", e, e.Bytes(), e.Check(16384, 1<<20))
	}
	for _, c := range []struct {
		off, n uint64
		want   Extents
		ok     bool
	}{
		{0, 16384, e, true},
		{4096, 8192, Extents{{0, 8192}}, true},
		{2048, 4096, Extents{{10240, 2048}, {0, 2048}}, true},
		{12288, 4096, Extents{{65536, 4096}}, true},
		{12288, 4097, Extents{{65536, 4096}}, false},
		{16384, 0, nil, true},
		{16384, 1, nil, false},
		{math.MaxUint64, 1, nil, false},
	} {
		if got, ok := e.Part(c.off, c.n); ok != c.ok || !slices.Equal(got, c.want) {
			t.Errorf("part of %d bytes at %d: %v, %v", c.n, c.off, got, ok)
		}
	}
}

func TestBadExtents(t *testing.T) {
	const file = 1 << 20
	for _, c := range []struct {
		name string
		e    Extents
	}{
		{"none", nil},
		{"empty", Extents{{0, 0}, {0, 8192}}},
		{"crooked start", Extents{{1, 8192}}},
		{"crooked length", Extents{{0, 8191}}},
		{"beyond the file", Extents{{file - 4096, 8192}}},
		{"far beyond", Extents{{math.MaxUint64 &^ 4095, 8192}}},
		{"too few", Extents{{0, 4096}}},
		{"too many", Extents{{0, 4096}, {8192, 8192}}},
		{"overflow", Extents{{0, 4096}, {0, math.MaxUint64 &^ 4095}, {0, 8192}}},
	} {
		if err := c.e.Check(8192, file); err == nil {
			t.Errorf("%s: accepted", c.name)
		}
	}
}

// Parts are mapped as one piece of memory, in their order.
func TestMapParts(t *testing.T) {
	f, err := os.CreateTemp(t.TempDir(), "parts")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	data := make([]byte, 4*4096)
	for i := range data {
		data[i] = byte(i / 4096)
	}
	if _, err := f.Write(data); err != nil {
		t.Fatal(err)
	}
	parts := Extents{{2 * 4096, 2 * 4096}, {0, 4096}}
	mem, err := MapParts(f, parts)
	if err != nil {
		t.Fatal(err)
	}
	if len(mem) != 3*4096 || mem[0] != 2 || mem[4096] != 3 || mem[2*4096] != 0 {
		t.Errorf("%d bytes, pages %d %d %d", len(mem), mem[0], mem[4096], mem[2*4096])
	}
	mem[2*4096+5] = 77
	if n, err := f.ReadAt(data[:1], 5); n != 1 || err != nil || data[0] != 77 {
		t.Errorf("what was written isn't in the file: %d, %v", data[0], err)
	}
	const base = 0x2100_0000_0000
	if at, ok := MapPartsAt(f, parts, base); !ok || at[4096] != 3 {
		t.Error("not at the address that was asked for")
	} else if _, ok := MapPartsAt(f, parts, base); ok {
		t.Error("mapped over what was there")
	} else {
		UnmapParts(at)
	}
	if err := UnmapParts(mem); err != nil {
		t.Error(err)
	}
}
