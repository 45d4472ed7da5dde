//go:build cgo

package nvidia

import (
	"testing"

	"pegasus/cuda"
)

const smallModule = ".version 6.0\n.target sm_50\n.address_size 64\n.visible .entry k()\n{\n\tret;\n}\n\x00"

// Inspecting takes no context of its own; the first one that it needs becomes the guest's.
func TestInspectMakesOneContext(t *testing.T) {
	d := openDevice(t, nil)
	look := func(want int) {
		t.Helper()
		if l, log, r := d.Inspect([]byte(smallModule)); r != cuda.Success || len(l.Functions) != 1 {
			t.Fatalf("%v %v %s", l, r, log)
		}
		if n := len(d.contexts); n != want {
			t.Errorf("there are %d contexts, want %d", n, want)
		}
	}
	look(1)
	look(1)
	spare := d.spare
	own, r := d.NewContext(4)
	if r != cuda.Success || own != spare || d.spare != nil {
		t.Errorf("the guest's first context is %p, want %p; %v", own, spare, r)
	}
	look(1)
	if other, r := d.NewContext(0); r != cuda.Success || other == own {
		t.Errorf("the guest's second context is its first; %v", r)
	}
	look(2)
	own.(*Context).Fail(cuda.ErrorIllegalAddress) // that one can't be used
	look(2)
}

// A context that was made for inspecting isn't used as the guest's if the guest requests other flags.
func TestSpareHasNoFlags(t *testing.T) {
	d := openDevice(t, nil)
	d.Inspect([]byte(smallModule))
	if c, r := d.NewContext(mapHost); r != cuda.Success || c == d.spare || d.spare == nil {
		t.Errorf("%v: the spare context was taken", r)
	}
}
