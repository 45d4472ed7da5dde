package hypervisor

import (
	"testing"
	"time"
)

const ms = time.Millisecond

// did is the activity of an account in a period, and its credit after that.
type did struct{ ran, waited, credit time.Duration }

func settle(t *testing.T, accounts []*Account, cpus int, all ...did) {
	t.Helper()
	for i, d := range all {
		accounts[i].Ran, accounts[i].Waited = d.ran, d.waited
	}
	for _, a := range accounts {
		a.CPUs, a.Most = FirstCPUs(cpus), 1000
	}
	Settle(accounts, 30*ms)
	for i, d := range all {
		if accounts[i].Credit != d.credit {
			t.Errorf("account %d, which ran %v and waited %v, has %v left, not %v", i, d.ran, d.waited, accounts[i].Credit, d.credit)
		}
	}
}

func TestShadowCredit(t *testing.T) {
	a, b := &Account{Weight: 256}, &Account{Weight: 256}
	equal := []*Account{a, b}
	settle(t, equal, 1, did{30 * ms, 0, -15 * ms}, did{0, 30 * ms, 15 * ms})
	// b is owed a whole period, reaches its bound, and earns nothing until it runs.
	settle(t, equal, 1, did{30 * ms, 0, -30 * ms}, did{0, 30 * ms, 15 * ms})
	settle(t, equal, 1, did{30 * ms, 0, -30 * ms}, did{0, 30 * ms, 15 * ms})
	settle(t, equal, 1, did{15 * ms, 15 * ms, -30 * ms}, did{15 * ms, 15 * ms, 15 * ms})
	// A sleeping account earns nothing; the other one gets all.
	settle(t, equal, 1, did{30 * ms, 0, -30 * ms}, did{0, 0, 15 * ms})

	// The heavy one can't use more than a CPU; the rest is the others'.
	heavy, light := &Account{Weight: 768}, &Account{Weight: 256}
	settle(t, []*Account{light, heavy}, 2, did{30 * ms, 0, 0}, did{30 * ms, 0, 0})
	settle(t, []*Account{light, heavy}, 1, did{15 * ms, 15 * ms, -7500 * time.Microsecond}, did{15 * ms, 15 * ms, 7500 * time.Microsecond})
}

// The greatest possible weights do not overflow.
func TestShadowCreditOfManyHeavyOnes(t *testing.T) {
	var all []*Account
	for range 512 {
		all = append(all, &Account{Weight: 65535 << 10, Ran: time.Second, Waited: time.Second, CPUs: FirstCPUs(512), Most: 1000})
	}
	Settle(all, time.Second)
	for _, a := range all {
		if a.Credit < -time.Microsecond || a.Credit > time.Microsecond {
			t.Fatalf("who ran as much as it earned has %v left", a.Credit)
		}
	}
}

// With bounds of their own, credits don't depend on the number of Settle calls.
func TestShadowCreditBound(t *testing.T) {
	spins, waits := &Account{Weight: 256, Bound: 30 * ms}, &Account{Weight: 256, Bound: 30 * ms}
	for i := range 12 {
		for _, a := range []*Account{spins, waits} {
			a.CPUs, a.Most, a.Ran, a.Waited = FirstCPUs(1), 1000, 0, 0
		}
		spins.Ran, waits.Waited = 5*ms, 5*ms
		Settle([]*Account{spins, waits}, 5*ms)
		if want := time.Duration(i+1) * 5 * ms / 2; i < 11 && (spins.Credit != -want || waits.Credit != want || waits.Earned != 5*ms/2) {
			t.Errorf("after %d: %v and %v", i+1, spins.Credit, waits.Credit)
		}
	}
	if spins.Credit != -30*ms || waits.Credit != 15*ms {
		t.Errorf("at the bounds: %v and %v", spins.Credit, waits.Credit)
	}
}
