package backend

import (
	"sync"
	"testing"
	"time"

	"pegasus/accel"
	"pegasus/backend/gate"
	"pegasus/configs"
)

// fakeAccount is an account of engine time that tests charge.
type fakeAccount struct {
	opened int64

	mu             sync.Mutex
	total, charged EngineTime
	closed         bool
}

func (a *fakeAccount) Opened() int64 { return a.opened }

func (a *fakeAccount) Total() EngineTime {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.total
}

func (a *fakeAccount) Charged() EngineTime {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.charged
}

func (a *fakeAccount) Turn(bool, bool, time.Duration) {}
func (a *fakeAccount) Close()                         { a.closed = true }

func (a *fakeAccount) Charge(time.Duration) EngineTime {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.total
	t.add(a.charged, -1)
	a.charged = a.total
	return t
}

// hold adds the time for which an engine was held.
func (a *fakeAccount) hold(t EngineTime) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.total.add(t, 1)
}

// hold charges a test's domain.
func (m *avcpu) hold(t EngineTime) { m.account.(*fakeAccount).hold(t) }

// A domain's totals include each part of its accounts once: over a restart of the daemon, which restores the last saved
// totals, and from one account to the next.
func TestTotalsTakeAccountsOnce(t *testing.T) {
	first, second := &fakeAccount{opened: 5}, &fakeAccount{opened: 6}
	dom := newDomain(configs.Domain{Name: "a"}, true)
	dom.account = first
	want := func(compute int64) {
		t.Helper()
		if got, _ := dom.totals(); got.Used.Compute != compute {
			t.Errorf("the domain has computed for %d ns, want %d", got.Used.Compute, compute)
		}
	}
	first.hold(EngineTime{Compute: 100})
	want(100)
	want(100)
	saved, booked := dom.past, dom.booked
	first.hold(EngineTime{Compute: 10})
	want(110) // and the daemon is killed

	dom = newDomain(configs.Domain{Name: "a"}, true)
	dom.past, dom.booked, dom.account = saved, booked, first
	first.hold(EngineTime{Compute: 1})
	want(111)
	dom.closeAccount()
	if !first.closed {
		t.Error("the account stays open")
	}
	want(111)
	dom.account = second
	second.hold(EngineTime{Compute: 1000})
	want(1111)
}

// Policies are charged by the measured hold of each engine, whatever workers report.
func TestChargedByEngine(t *testing.T) {
	a := quietAccelerator(t, configs.Accelerator{Name: "x", Policy: "lag", Accounts: "mrq"})
	page := attachPage(t, a, "a")
	member := gate.Join(page, a.bell, mustSlot(t, page))
	member.Spend(new(gate.Ticket), accel.Usage{Class: accel.CopyOut, End: 1e9})
	m := a.members[0]
	m.hold(EngineTime{Compute: 7, CopyIn: 20, CopyOut: 300})
	a.turn()
	a.turn()
	st, _ := a.sched.Stat(m.id)
	if st.Used.Compute != 7 || st.Used.Copy != 320 {
		t.Errorf("charged %+v", st.Used)
	}
}
