package engine

import (
	"testing"

	"pegasus/accel/residence"
)

// nowhere moves no bytes: a move is accounted for all the same.
type nowhere struct{}

func (nowhere) Evict(addr, n uint64) error    { return nil }
func (nowhere) Retrieve(addr, n uint64) error { return nil }

// A domain may get more memory of its own than is free: owners with more than their guarantee give way for it.
func TestCommonsBeyondWhatIsFree(t *testing.T) {
	const mib = 1 << 20
	m, e := newPages(t, Options{Memory: 200 * mib, Swap: 400 * mib})
	var ledgers [3]*Ledger
	var sets [3]*residence.Set
	for i, guarantee := range []uint64{0, 80 * mib, 0} {
		w := register(t, m, e)
		defer w.Close()
		w.SetShare(DomainNumber(string(rune('a'+i))), guarantee, 0)
		var err error
		if ledgers[i], err = NewLedger(w); err != nil {
			t.Fatal(err)
		}
		defer ledgers[i].Close()
		sets[i] = residence.New(nowhere{}, ledgers[i], nil)
		defer sets[i].Close()
	}
	for _, of := range []struct{ who, count uint64 }{{1, 5}, {0, 6}} { // guaranteed memory is that used the longest ago
		for k := range of.count {
			if !ledgers[of.who].Reserve(16*mib) || !sets[of.who].TryAdd(k<<25, 16*mib) {
				t.Fatal("there is no room")
			}
		}
		ledgers[of.who].Touch()
	}
	if !ledgers[2].ReserveCommons(24 * mib) {
		t.Fatal("there is no room")
	}
	if n := ledgers[2].Free(); n != -20*mib {
		t.Errorf("%d bytes are free", n)
	}
	if err := sets[2].Claim(8*mib, nil); err != nil || sets[0].Away() != 32*mib || sets[1].Away() != 0 {
		t.Errorf("%v; %d bytes are away, and %d of what was promised", err, sets[0].Away(), sets[1].Away())
	}
}

// The worker that has waited for room the longest is ahead of all others, until it waits no longer or is gone.
func TestAhead(t *testing.T) {
	m, e := newPages(t, Options{Memory: 1 << 20, Swap: 1 << 20})
	now := int64(1)
	var ledgers [3]*Ledger
	for i := range ledgers {
		w, err := m.Register(e, func() int64 { return now })
		if err != nil {
			t.Fatal(err)
		}
		if i != 1 {
			defer w.Close()
		}
		if ledgers[i], err = NewLedger(w); err != nil {
			t.Fatal(err)
		}
		defer ledgers[i].Close()
	}
	wantAhead := func(what string, want [3]int) { // of each; its own index: none
		t.Helper()
		for i, l := range ledgers {
			if owner, _, ok := l.Ahead(); owner != ledgers[want[i]].at.index || ok != (i != want[i]) {
				t.Errorf("%s: place %d is ahead of worker %d, %v; want place %d", what, owner, i, ok, ledgers[want[i]].at.index)
			}
		}
	}
	wantAhead("none waits", [3]int{0, 1, 2})
	ledgers[1].Queue()
	wantAhead("one waits", [3]int{1, 1, 1})
	ledgers[2].Queue()
	wantAhead("two began at once", [3]int{1, 1, 1})
	now++
	ledgers[0].Queue()
	wantAhead("three wait", [3]int{1, 1, 1})
	ledgers[1].Unqueue()
	wantAhead("the first has its room", [3]int{2, 2, 2})
	ledgers[1].Queue()
	ledgers[2].Unqueue()
	wantAhead("two are left", [3]int{0, 0, 0})
	ledgers[0].Unqueue()
	ledgers[1].Worker.Close()
	for _, i := range []int{0, 2} {
		if _, _, ok := ledgers[i].Ahead(); ok {
			t.Errorf("a worker that is gone is ahead of worker %d", i)
		}
	}
}
