package kvm

import (
	"testing"

	"pegasus/callbuf"
)

// Parts are in free space and disjoint; freed parts are allocated again.
func TestRoom(t *testing.T) {
	r := room{bytes: 16 << 12}
	take := func(name string, pages uint64) uint64 {
		t.Helper()
		e, err := r.take(name, pages<<12)
		if err != nil || e.Bytes != pages<<12 {
			t.Fatalf("%+v, %v", e, err)
		}
		return e.Offset >> 12
	}
	if a, b, c := take("a", 4), take("b", 4), take("c", 8); a != 0 || b != 4 || c != 8 {
		t.Errorf("at %d, %d, %d", a, b, c)
	}
	if e, err := r.take("d", 4096); err == nil {
		t.Errorf("of a full region: %+v", e)
	}
	r.give("b")
	if _, err := r.take("d", 5<<12); err == nil {
		t.Error("more than is left in one piece")
	}
	if d, e := take("d", 1), take("e", 3); d != 4 || e != 5 {
		t.Errorf("at %d, %d", d, e)
	}
	if len(r.parts) != 4 {
		t.Errorf("%+v", r.parts)
	}
}

// Recorded parts are accepted if they are plausible.
func TestKeptRoom(t *testing.T) {
	r := room{bytes: 16 << 12}
	for _, p := range []uint64{8, 0, 4} {
		if err := r.keep("x", callbuf.Extent{Offset: p << 12, Bytes: 4 << 12}); err != nil {
			t.Error(err)
		}
	}
	for _, e := range []callbuf.Extent{
		{Offset: 0, Bytes: 4096}, {Offset: 3 << 12, Bytes: 4096}, {Offset: 7 << 12, Bytes: 8192}, {Offset: 11 << 12, Bytes: 4096},
		{Offset: 12 << 12, Bytes: 5 << 12}, {Offset: 1 << 63, Bytes: 1 << 63}, {Offset: 12 << 12, Bytes: ^uint64(0)}, {Offset: 12 << 12}, {Offset: 12<<12 + 8, Bytes: 8},
	} {
		if err := r.keep("y", e); err == nil {
			t.Errorf("%+v is taken", e)
		}
	}
	if e, err := r.take("z", 4<<12); err != nil || e.Offset != 12<<12 {
		t.Errorf("%+v, %v", e, err)
	}
}
