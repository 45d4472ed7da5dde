package guests

import (
	"runtime"
	"testing"

	"pegasus/backend/gate"
	"pegasus/backend/sched"
)

// A domain's workers handle calls on all CPUs while no other domain has processes, and on half of them otherwise.
func TestHandlersOfDomains(t *testing.T) {
	reg := &Registry{domains: map[string]*domain{}, seats: seats{guests: map[uint64]*guest{}}}
	bell, err := gate.NewBell()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { bell.Free() })
	for _, name := range []string{"a", "b"} {
		page, err := gate.New()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { page.Free() })
		dom := &domain{reg: reg, name: name, on: &accelerator{}, attachment: &sched.Attachment{Page: page}, guests: map[*guest]struct{}{}}
		reg.domains[name] = dom
		reg.setQuotas(page, dom.settings)
	}
	add := func(id uint64, name string) {
		g := &guest{dom: reg.domains[name]}
		g.dom.guests[g], reg.guests[id] = struct{}{}, g
		reg.shareProcessors()
	}
	remove := func(id uint64) {
		g := reg.guests[id]
		delete(g.dom.guests, g)
		delete(reg.guests, id)
		reg.shareProcessors()
	}
	want := func(when string, n int) {
		t.Helper()
		for name, dom := range reg.domains {
			page, got := dom.attachment.Page, 0
			for range 256 {
				slot, err := page.TakeSlot()
				if err != nil {
					t.Fatal(err)
				}
				defer page.Reap(slot)
				if m := gate.Join(page, bell, slot); !m.MayHandle() {
					break
				}
				got++
			}
			if got != min(max(n, 1), 64) {
				t.Errorf("%s: %d workers of %s handle calls at once, want %d", when, got, name, n)
			}
		}
	}
	cpus := runtime.NumCPU()
	want("no processes", cpus)
	add(1, "a")
	add(2, "a")
	want("processes of a", cpus)
	add(3, "b")
	want("processes of both", cpus/2)
	remove(1)
	remove(2)
	want("a process of b", cpus)
}
