package guests

import (
	"sync"
	"testing"
	"time"

	"pegasus/backend/gate"
	"pegasus/backend/hardware"
	"pegasus/backend/hardware/hardwaretest"
	"pegasus/configs"
)

// idleHardware is an accelerator on which no engine was ever held.
type idleHardware struct{ hardware.Accelerator }

func (idleHardware) BusyTime() int64           { return 0 }
func (idleHardware) Profile() hardware.Profile { return hardware.Profile{} }

// The next daemon restores domains' debts, whether or not they have processes then.
func TestAccountsOutliveTheDaemon(t *testing.T) {
	owes := func(a *accelerator, name string) time.Duration { return -a.Balances()[name][0] }
	uses := func(d *Registry, name string, burst time.Duration) {
		d.domains[name].account.(*hardwaretest.Account).Hold(hardware.EngineTime{Compute: int64(burst)})
		d.accelerators[0].Balance() // charges it
	}
	d := attachedDaemon(t, "accc", map[string]int{"victim": 1, "thief": 2})
	a := d.accelerators[0]
	a.Hardware = idleHardware{}
	page := d.domains["victim"].attachment.Page
	slot, err := page.TakeSlot()
	if err != nil {
		t.Fatal(err)
	}
	victim := gate.Join(page, a.Bell, slot)
	waits, ended := make(chan struct{}), make(chan struct{})
	announce := sync.OnceFunc(func() { close(waits) })
	go func() {
		defer close(ended)
		victim.Acquire(gate.Compute, 1, false, func() (bool, time.Duration) { announce(); return false, time.Second }, nil)
	}()
	defer func() { victim.Stop(); <-ended }()
	<-waits // victim always has work
	a.Balance()
	uses(d, "thief", time.Minute)
	uses(d, "victim", time.Hour)
	a.Detach(d.domains["thief"].attachment)
	d.domains["thief"].on, d.domains["thief"].attachment = nil, nil
	d.store.save()

	next := attachedDaemon(t, "lag", map[string]int{"other": 3})
	next.opt.RuntimeDir = d.opt.RuntimeDir
	s, err := next.store.readState()
	if err != nil {
		t.Fatal(err)
	}
	next.store.restoreAccounts(&s)
	b := next.accelerators[0]
	b.Hardware = idleHardware{}
	again, err := gate.New()
	if err != nil {
		t.Fatal(err)
	}
	b.Attach(d.domains["victim"].settings, 0, again, nil, new(hardwaretest.Account))
	for name, want := range map[string]time.Duration{"victim": time.Hour, "thief": time.Minute} {
		if owed := owes(b, name); (owed - want).Abs() > time.Second {
			t.Errorf("%s owes %v, not %v", name, owed, want)
		}
	}
	next.store.save()
	if next.store.drifted() {
		t.Error("nothing has happened since the state was saved")
	}
	uses(next, "other", accountDrift+time.Millisecond)
	if !next.store.drifted() {
		t.Error("a change is not noticed")
	}
}

// A domain's totals include each part of its accounts once: over a restart of the daemon, which restores the last saved
// totals, and from one account to the next.
func TestTotalsTakeAccountsOnce(t *testing.T) {
	first, second := &hardwaretest.Account{ID: 5}, &hardwaretest.Account{ID: 6}
	dom := newDomain(nil, configs.Domain{Name: "a"}, true)
	dom.account = first
	want := func(compute int64) {
		t.Helper()
		if got, _ := dom.totals(); got.Used.Compute != compute {
			t.Errorf("the domain has computed for %d ns, want %d", got.Used.Compute, compute)
		}
	}
	first.Hold(hardware.EngineTime{Compute: 100})
	want(100)
	want(100)
	saved, booked := dom.past, dom.booked
	first.Hold(hardware.EngineTime{Compute: 10})
	want(110) // and the daemon is killed

	dom = newDomain(nil, configs.Domain{Name: "a"}, true)
	dom.past, dom.booked, dom.account = saved, booked, first
	first.Hold(hardware.EngineTime{Compute: 1})
	want(111)
	dom.closeAccount()
	if !first.Closed() {
		t.Error("the account stays open")
	}
	want(111)
	dom.account = second
	second.Hold(hardware.EngineTime{Compute: 1000})
	want(1111)
}
