package memory

import (
	"bytes"
	"testing"

	"golang.org/x/sys/unix"
)

// store is a file of so many slabs.
func store(t *testing.T, n uint64) int {
	t.Helper()
	fd, err := newFile("store", n*SlabSize)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// Lent memory keeps its address and its bytes, as does the memory beside it; a process that attaches it sees the same
// bytes and nothing beside them, also when it has been freed, until it is allocated again; and when all of it is free the file is released.
func TestLend(t *testing.T) {
	exporter, importer := space(t, 4), space(t, 4)
	fd := store(t, 3)
	gone := 0
	find := func(n uint64) (*ExportedRegion, error) {
		if n != SlabSize {
			t.Errorf("%d bytes are to be found", n)
		}
		return &ExportedRegion{FD: fd, Offset: SlabSize, ID: 7, Gone: func() { gone++ }}, nil
	}
	sizes := []uint64{700, 5000, 1 << 20, 300 << 10, 512}
	var all []uint64
	for i, n := range sizes {
		addr, err := exporter.Alloc(n, true)
		if err != nil {
			t.Fatal(err)
		}
		fill(exporter.Raw(addr, n), byte(i+1))
		all = append(all, addr)
	}
	for _, i := range []int{1, 2, 1} {
		to, at, n, err := exporter.Export(all[i], find)
		if err != nil || to.ID != 7 || n != RoundUp(sizes[i]) {
			t.Fatalf("%+v %d %d %v", to, at, n, err)
		}
		addr, err := importer.Attach(fd, to.Offset+at, n)
		if err != nil {
			t.Fatal(err)
		}
		if sp, ok := importer.Find(addr); !ok || sp != (Span{addr, addr + n}) {
			t.Errorf("%+v %v is visible, want %d bytes at %#x", sp, ok, n, addr)
		}
		if _, ok := importer.Find(addr - 1); ok {
			t.Errorf("what lies before it is visible")
		}
		if mem := importer.Slice(addr, sizes[i]); !uniform(mem, byte(i+1)) {
			t.Errorf("allocation %d is not what it was", i)
		}
		importer.Slice(addr, sizes[i])[3] = 99
		if mem := exporter.Raw(all[i], sizes[i]); mem[3] != 99 {
			t.Errorf("what was written is %d for the exporter", mem[3])
		}
		exporter.Raw(all[i], sizes[i])[3] = byte(i + 1)
		if err := importer.Detach(addr + Granule); err == nil {
			t.Errorf("it was detached by another address")
		}
		if err := importer.Detach(addr); err != nil {
			t.Fatal(err)
		}
	}
	for i, n := range sizes {
		if !uniform(exporter.Raw(all[i], n), byte(i+1)) {
			t.Errorf("allocation %d is not what it was for the exporter", i)
		}
	}
	to, at, n, err := exporter.Export(all[2], find)
	if err != nil {
		t.Fatal(err)
	}
	attached, err := importer.Attach(fd, to.Offset+at, n)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := exporter.Free(all[2]); err != nil { // whole pages
		t.Fatal(err)
	}
	if !uniform(importer.Slice(attached, sizes[2]), 3) {
		t.Errorf("what was freed is not what it was for a process that uses it")
	}
	if all[2], err = exporter.Alloc(sizes[2], true); err != nil || !uniform(exporter.Raw(all[2], sizes[2]), 0) {
		t.Errorf("%v: what is handed out again is not zero", err)
	}
	if _, _, _, err := exporter.Export(all[1]+Granule, find); err != ErrAddress {
		t.Errorf("within an allocation: %v", err)
	}
	hidden, err := exporter.Alloc(512, false)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := exporter.Export(hidden, find); err != ErrAddress {
		t.Errorf("what kernels don't see: %v", err)
	}
	for _, addr := range append(all, hidden) {
		if gone != 0 {
			t.Errorf("the file was let go of while there was something in it")
		}
		if _, err := exporter.Free(addr); err != nil {
			t.Fatal(err)
		}
	}
	if gone != 1 {
		t.Errorf("the file was let go of %d times", gone)
	}
}

// Only memory that was ever written takes space in the file, and a failed allocation of the file changes nothing.
func TestLendSparsely(t *testing.T) {
	s := space(t, 4)
	fd := store(t, 2)
	addr, err := s.Alloc(100<<20, true)
	if err != nil {
		t.Fatal(err)
	}
	fill(s.Raw(addr+30<<20, 8192), 5)
	if _, _, _, err := s.Export(addr, func(uint64) (*ExportedRegion, error) { return nil, unix.ENOSPC }); err != unix.ENOSPC {
		t.Errorf("no file: %v", err)
	}
	gone := 0
	if _, _, _, err := s.Export(addr, func(uint64) (*ExportedRegion, error) { return &ExportedRegion{FD: -1, Gone: func() { gone++ }}, nil }); err == nil || gone != 1 {
		t.Errorf("a bad file: %v, let go of %d times", err, gone)
	}
	if !uniform(s.Raw(addr+30<<20, 8192), 5) {
		t.Error("its bytes are gone")
	}
	if _, _, n, err := s.Export(addr, func(n uint64) (*ExportedRegion, error) { return &ExportedRegion{FD: fd, Gone: func() { gone++ }}, nil }); err != nil || n != 100<<20 {
		t.Fatalf("%d %v", n, err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Blocks*512 > 8<<20 {
		t.Errorf("%d bytes are taken of the file, %v", st.Blocks*512, err)
	}
	if !uniform(s.Raw(addr+30<<20, 8192), 5) || !uniform(s.Raw(addr+31<<20, 8192), 0) {
		t.Error("its bytes are others")
	}
}

func fill(mem []byte, v byte) {
	for i := range mem {
		mem[i] = v
	}
}

func uniform(mem []byte, v byte) bool { return bytes.Count(mem, []byte{v}) == len(mem) }
