package guests

import (
	"testing"

	"pegasus/backend/hardware"
	"pegasus/backend/hardware/hardwaretest"
	"pegasus/configs"
)

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
