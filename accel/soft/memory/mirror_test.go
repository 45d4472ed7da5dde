package memory

import (
	"bytes"
	"testing"

	"golang.org/x/sys/unix"
)

// Evicted memory comes back unchanged, beside neighbours that stay; meanwhile reads come from the mirror; and the next
// owner of the place finds zeros.
func TestEvictRetrieve(t *testing.T) {
	r := seed(t)
	s := space(t, 8)
	if err := s.Mirror(); err != nil {
		t.Fatal(err)
	}
	type allocation struct {
		addr, n uint64
		value   []byte
		away    bool
	}
	var live []*allocation
	where := func(a *allocation) []byte {
		if a.away {
			return s.Evicted(a.addr, a.n)
		}
		return s.Raw(a.addr, a.n)
	}
	sizes := []uint64{1, 512, 700, 4096, 5000, 100_000, 300_000, 5 << 20}
	for range 400 {
		switch {
		case len(live) < 20 && r.IntN(3) == 0:
			a := &allocation{n: sizes[r.IntN(len(sizes))]}
			var err error
			if a.addr, err = s.Alloc(a.n, r.IntN(2) == 0); err != nil {
				continue
			}
			a.value = make([]byte, a.n)
			if !bytes.Equal(s.Raw(a.addr, a.n), a.value) || !bytes.Equal(s.Evicted(a.addr, a.n), a.value) {
				t.Fatalf("fresh memory of %d bytes at %#x is not zero", a.n, a.addr)
			}
			live = append(live, a)
		case len(live) == 0:
		case r.IntN(6) == 0:
			i := r.IntN(len(live))
			if _, err := s.Free(live[i].addr); err != nil {
				t.Fatal(err)
			}
			live = append(live[:i], live[i+1:]...)
		case r.IntN(3) == 0: // write a part
			a := live[r.IntN(len(live))]
			from := r.Uint64N(a.n)
			for i := from; i < min(a.n, from+5000); i++ {
				a.value[i] = byte(r.Uint32())
			}
			copy(where(a)[from:], a.value[from:min(a.n, from+5000)])
		default:
			a := live[r.IntN(len(live))]
			step := s.Evict
			if a.away {
				step = s.Retrieve
			}
			if err := step(a.addr, RoundUp(a.n)); err != nil {
				t.Fatal(err)
			}
			a.away = !a.away
			if !bytes.Equal(where(a), a.value) {
				t.Fatalf("%d bytes at %#x are not what they were", a.n, a.addr)
			}
		}
	}
	for _, a := range live {
		if !bytes.Equal(where(a), a.value) {
			t.Errorf("%d bytes at %#x are not what they were", a.n, a.addr)
		}
	}
}

// Evicted memory occupies no device memory any more, and untouched memory occupies none anywhere.
func TestEvictedMemoryIsGivenBack(t *testing.T) {
	s := space(t, 4)
	if err := s.Mirror(); err != nil {
		t.Fatal(err)
	}
	pages := func(fd int) int64 {
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			t.Fatal(err)
		}
		return st.Blocks * 512
	}
	const n = 32 << 20
	at, err := s.Alloc(n, true)
	if err != nil {
		t.Fatal(err)
	}
	l := s.at(at)
	if err := s.Evict(at, n); err != nil {
		t.Fatal(err)
	}
	if on, off := pages(l.fd), pages(s.mirror.fd); on != 0 || off != 0 {
		t.Errorf("untouched memory takes %d and %d bytes", on, off)
	}
	if err := s.Retrieve(at, n); err != nil {
		t.Fatal(err)
	}
	for i := uint64(0); i < n/2; i += pageSize {
		s.Raw(at, n)[i] = 1
	}
	for _, c := range []struct {
		move    func(addr, n uint64) error
		on, off int64
	}{{s.Evict, 0, n / 2}, {s.Retrieve, n / 2, 0}} {
		if err := c.move(at, n); err != nil {
			t.Fatal(err)
		}
		if on, off := pages(l.fd), pages(s.mirror.fd); on != c.on || off != c.off {
			t.Errorf("%d bytes are on the device and %d off it, want %d and %d", on, off, c.on, c.off)
		}
	}
}
