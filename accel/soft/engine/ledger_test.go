package engine

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

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

// A process that was killed while it waited delays no other, also before the daemon has reaped it.
func TestDeadHead(t *testing.T) {
	const mib = 1 << 20
	m, e := newPages(t, Options{Memory: 200 * mib, Swap: 400 * mib})
	a, dead := register(t, m, e), register(t, m, e)
	defer a.Close()
	la, err := NewLedger(a)
	if err != nil {
		t.Fatal(err)
	}
	defer la.Close()
	ld, err := NewLedger(dead)
	if err != nil {
		t.Fatal(err)
	}
	ld.Queue()
	unix.Close(ld.at.lock) // the kernel does this when a process dies
	s := residence.New(nowhere{}, la, nil)
	defer s.Close()
	if !a.Reserve(16*mib) || !s.TryAdd(0, 16*mib) {
		t.Fatal("there is no room")
	}
	began := time.Now()
	err = s.BeginKernel(nil)
	if err == nil {
		s.End(true)
	}
	if d := time.Since(began); err != nil || d > time.Second || s.Away() != 0 {
		t.Errorf("beside a dead process, with %d MiB free: %v after %v", la.Free()/mib, err, d)
	}
}

// Two workers of one domain, whose guarantee is as large as the memory of one of them. Another domain has its guaranteed
// memory, which has been idle for longest.
func TestGuaranteeOfTheOwnDomain(t *testing.T) {
	const mib = 1 << 20
	m, e := newPages(t, Options{Memory: 200 * mib, Swap: 400 * mib}) // capacity 180
	var ledgers [3]*Ledger
	var sets [3]*residence.Set
	for i, of := range []struct {
		domain    string
		guarantee uint64
	}{{"other", 80 * mib}, {"mine", 100 * mib}, {"mine", 100 * mib}} {
		w := register(t, m, e)
		defer w.Close()
		w.SetShare(DomainNumber(of.domain), of.guarantee, 0)
		var err error
		if ledgers[i], err = NewLedger(w); err != nil {
			t.Fatal(err)
		}
		defer ledgers[i].Close()
		sets[i] = residence.New(nowhere{}, ledgers[i], nil)
		defer sets[i].Close()
	}
	for i, n := range []uint64{80 * mib, 96 * mib, 64 * mib} {
		if !ledgers[i].Reserve(n) || !sets[i].TryAdd(uint64(i)<<32, n) {
			t.Fatal("there is no room")
		}
		ledgers[i].Touch()
	}
	began := time.Now()
	err := sets[2].BeginKernel(nil)
	if err == nil {
		sets[2].End(true)
	}
	if d := time.Since(began); err != nil || sets[0].Away() != 0 || d > time.Second {
		t.Errorf("%v after %v; %d MiB of the other domain's guaranteed memory are away, %d MiB of the own domain's", err, d, sets[0].Away()/mib, sets[1].Away()/mib)
	}
}
