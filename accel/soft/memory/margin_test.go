package memory

import (
	"bytes"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Accesses a little below and above allocations reach memory, which is that of no allocation.
func TestBeside(t *testing.T) {
	s := space(t, 8)
	own := func(n uint64) uint64 {
		a, err := s.Alloc(n, true)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	first := own(4096)
	hidden, err := s.Alloc(4096, false)
	if err != nil {
		t.Fatal(err)
	}
	far := own(8 << 20)
	for _, c := range []struct {
		name string
		addr uint64
		ok   bool
	}{
		{"below the space", first - 8, true},
		{"a margin below the space", first - Margin, true},
		{"more below the space", first - Margin - Granule, false},
		{"memory that is not visible", hidden, true},
		{"behind the last one", far + 8<<20, true},
		{"a margin behind the last one", far + 8<<20 + Margin - 8, true},
		{"more behind the last one", far + 8<<20 + Margin + Granule, false},
		{"null", 0, false},
		{"the last address", ^uint64(7), false},
	} {
		if _, mem := s.Region(c.addr); mem != nil {
			t.Errorf("%s: it is in an allocation", c.name)
		}
		mem := s.Beside(c.addr, 8)
		if (mem != nil) != c.ok {
			t.Errorf("%s (%#x): memory %v, want %v", c.name, c.addr, mem != nil, c.ok)
		}
		if mem != nil {
			copy(mem, "trespass")
			if again := s.Beside(c.addr, 8); string(again) != "trespass" {
				t.Errorf("%s: %q", c.name, again)
			}
		}
	}
	for addr, n := range map[uint64]uint64{first: 4096, hidden: 4096, far: 8 << 20} {
		if b := s.Raw(addr, n); len(bytes.TrimRight(b, "\x00")) != 0 {
			t.Errorf("an access beside %#x changed it", addr)
		}
	}
	if _, err := s.Free(first); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Free(far); err != nil {
		t.Fatal(err)
	}
	if s.Beside(first+4096, 8) != nil {
		t.Error("freed memory has a margin")
	}

	// Mappings consist of whole pages, attached memory doesn't.
	at, err := s.Reserve(2*MapGranule, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	p, err := s.NewPhysical(MapGranule, func() {})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Map(at, MapGranule, 0, p); err != nil {
		t.Fatal(err)
	}
	if err := s.Protect(at, MapGranule, 2); err != nil {
		t.Fatal(err)
	}
	if s.Beside(at+MapGranule, 8) != nil || s.Beside(at-8, 8) != nil {
		t.Error("a mapping has a margin")
	}
	fd, err := newFile("test", 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	part, err := s.Attach(fd, 4096, 8192)
	if err != nil {
		t.Fatal(err)
	}
	if s.Beside(part+8192, 8) == nil {
		t.Error("what is attached has no margin")
	}
}

// With Strict an allocation ends at its last byte, and another one doesn't begin there.
func TestStrict(t *testing.T) {
	s := space(t, 8)
	before, err := s.Alloc(100, true)
	if err != nil {
		t.Fatal(err)
	}
	s.Strict()
	var all []uint64
	for _, n := range []uint64{100, 4096, 1, 64 << 20} {
		a, err := s.Alloc(n, true)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, a)
		for _, d := range []uint64{0, n / 2, n - 1} {
			if base, mem := s.Region(a + d); base != a || uint64(len(mem)) != n {
				t.Errorf("%d bytes at %#x + %d: region %#x of %d", n, a, d, base, len(mem))
			}
		}
		for _, addr := range []uint64{a - 1, a + n, a + n + 1000} {
			if _, mem := s.Region(addr); mem != nil || s.Beside(addr, 1) != nil {
				t.Errorf("%d bytes at %#x: %#x can be accessed", n, a, addr)
			}
		}
	}
	if _, mem := s.Region(before); len(mem) != 100 {
		t.Errorf("an earlier allocation has %d bytes", len(mem))
	}
	for addr, want := range map[uint64]string{
		all[0] + 100:     "offset 100 of the allocation of 100 bytes at ",
		all[1] - 4:       "offset -4 of the allocation of 4096 bytes at ",
		all[1] + 4096:    "offset 4096 of the allocation of 4096 bytes at ",
		all[3] + 64<<20:  "offset 67108864 of the allocation of 67108864 bytes at ",
		all[3] + 100<<20: "",
		16:               "",
	} {
		if got := s.Describe(addr); !strings.HasPrefix(got, want) || (got == "") != (want == "") {
			t.Errorf("%#x: %q, want %q", addr, got, want)
		}
	}
	for _, a := range append(all, before) {
		if _, err := s.Free(a); err != nil {
			t.Fatal(err)
		}
	}
	if a, err := s.Alloc(64<<20, true); err != nil {
		t.Fatalf("room is lost: %v, %#x", err, a)
	}
}
