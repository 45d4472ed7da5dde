package region

import (
	"slices"
	"testing"
)

func TestTables(t *testing.T) {
	page := make([]byte, PageBytes)
	want := make([]uint32, TableRefs)
	for i := range want {
		want[i] = uint32(i + 8)
	}
	PutTable(page, want, 77)
	refs, next, err := ParseTable(page)
	if err != nil || next != 77 || !slices.Equal(refs, want) {
		t.Errorf("%d numbers, next %d: %v", len(refs), next, err)
	}
	if Tables(TableRefs) != 1 || Tables(TableRefs+1) != 2 || Tables(4096) != 5 {
		t.Error("how many tables there are")
	}
	PutTable(page[ControlTable:], []uint32{9, 10, 11, 12}, 0)
	if refs, _, err := ParseTable(page[ControlTable:]); err != nil || len(refs) != ControlPages-1 {
		t.Errorf("%v, %v", refs, err)
	}
	if ControlTable < offHubRouses+8 || ControlTable+tableHead+4*ControlPages > offHostRelease || ControlAlive < offHubRouses+8 || ControlAlive >= ControlTable {
		t.Error("the control area's parts overlap")
	}
}

func FuzzTable(f *testing.F) {
	page := make([]byte, 64)
	PutTable(page, []uint32{1, 2, 3}, 4)
	f.Add(page)
	f.Fuzz(func(t *testing.T, b []byte) {
		refs, next, err := ParseTable(b)
		if err != nil {
			return
		}
		if len(refs) == 0 || len(refs)*4 > len(b)-tableHead || next > MaxRef || slices.Max(refs) > MaxRef || slices.Min(refs) == 0 {
			t.Errorf("%d numbers, next %d, out of %d bytes", len(refs), next, len(b))
		}
	})
}

func FuzzGrant(f *testing.F) {
	f.Add(GrantBody(12))
	f.Fuzz(func(t *testing.T, b []byte) {
		if table, err := ParseGrant(b); err == nil && table > MaxRef {
			t.Errorf("table %d", table)
		}
	})
}

// Under Xen the kernel clears a byte at the hub's end, which the agent sees.
func TestHubEnds(t *testing.T) {
	mem := make([]byte, ControlBytes)
	g, h := NewGuest(mem), NewHost(mem)
	g.Begin(7)
	h.Serve(7, 1)
	if !g.Answered() || g.Over() {
		t.Error("a hub that says nothing of its end is taken for dead")
	}
	mem[ControlAlive] = 1
	if g.Over() {
		t.Error("a hub that lives is taken for dead")
	}
	mem[ControlAlive] = 0
	if !g.Over() {
		t.Error("its end isn't seen")
	}
	g.Begin(8)
	h.Serve(8, 2)
	if !g.Answered() || g.Over() {
		t.Error("the next is taken for dead, too")
	}
}
