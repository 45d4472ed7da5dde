package sched

import (
	"strings"
	"testing"
	"time"

	"pegasus/accel"
	"pegasus/backend/gate"
	"pegasus/backend/hardware"
	"pegasus/configs"
	"pegasus/policies"
	"pegasus/vcpu"
)

// victimAndThief returns an accelerator with two domains: victim, which always has work, and thief.
func victimAndThief(t *testing.T) *Accelerator {
	a := busyAccelerator(t, "accc", "victim", "thief")
	a.passing = func(name string) bool { return strings.HasPrefix(name, "new") }
	sendEvent(a, "victim", policies.Event{Kind: policies.Wake, Signal: policies.Arrived})
	a.sched.Ready(vcpu.Time(gate.Now()))
	return a
}

func sendEvent(a *Accelerator, name string, e policies.Event) {
	e.Domain.ID = a.ids[name]
	a.step(gate.Now(), e)
}

// uses charges a domain for a burst.
func uses(a *Accelerator, name string, burst time.Duration) {
	sendEvent(a, name, policies.Event{Kind: policies.Charge, Used: policies.Usage{Compute: burst}})
}

func owes(a *Accelerator, name string) time.Duration { return -a.Balances()[name][0] }

func member(a *Accelerator, name string) *Attachment {
	for _, m := range a.members {
		if m.Domain == name {
			return m
		}
	}
	return nil
}

// A domain whose last process has left continues its account when another process arrives.
func TestAccountStays(t *testing.T) {
	a := victimAndThief(t)
	id := a.ids["thief"]
	uses(a, "thief", time.Minute)
	a.Detach(member(a, "thief"))
	if owed := owes(a, "thief"); owed < 59*time.Second {
		t.Errorf("while it is away it owes %v of a minute", owed)
	}
	attachPage(t, a, "another")
	attachPage(t, a, "thief")
	if owed := owes(a, "thief"); owed < 59*time.Second || a.ids["thief"] != id {
		t.Errorf("when it is back it owes %v of a minute, with ID %d instead of %d", owed, a.ids["thief"], id)
	}
	if owed := owes(a, "another"); owed > time.Second {
		t.Errorf("another that came meanwhile owes %v", owed)
	}
}

// A thief that changes its name for each process gets no more than one that keeps it: a new name that the configuration
// does not declare takes over the largest debt among such names.
func TestNewNameOldDebt(t *testing.T) {
	a := victimAndThief(t)
	for _, name := range []string{"new0", "new1", "declared", "new2"} {
		attachPage(t, a, name)
	}
	uses(a, "new0", time.Minute)
	uses(a, "new1", 2*time.Minute)
	uses(a, "declared", 3*time.Minute)
	uses(a, "new2", 4*time.Minute) // it stays
	for _, name := range []string{"new0", "new1", "declared"} {
		a.Detach(member(a, name))
	}
	for _, c := range []struct {
		name string
		want time.Duration
	}{{"declared2", 0}, {"new3", 2 * time.Minute}, {"new4", time.Minute}, {"new5", 0}, {"declared", 3 * time.Minute}, {"new1", 0}} {
		attachPage(t, a, c.name)
		if owed := owes(a, c.name); (owed - c.want).Abs() > time.Second {
			t.Errorf("%s owes %v, not %v", c.name, owed, c.want)
		}
	}
}

// With several accounts each is kept, and a change of settings merges two into one.
func TestAccountsOfEngines(t *testing.T) {
	a := victimAndThief(t)
	a.RestoreAccount(configs.Domain{Name: "left", Credits: 256}, policies.Balances{-time.Second, -2 * time.Second})
	if owed := owes(a, "left"); owed < 2900*time.Millisecond {
		t.Errorf("with one account it owes %v", owed)
	}
	c := a.settings
	c.Accounts = "mrq"
	p, err := NewPolicies(c)
	if err != nil {
		t.Fatal(err)
	}
	a.Configure(c, p)
	a.RestoreAccount(configs.Domain{Name: "other", Credits: 256}, policies.Balances{-time.Second, -2 * time.Second})
	if b := a.Balances()["other"]; b[0] > -900*time.Millisecond || b[1] > -1900*time.Millisecond {
		t.Errorf("with two accounts it is owed %v", b)
	}
}

// Policies are charged by the measured hold of each engine, whatever workers report.
func TestChargedByEngine(t *testing.T) {
	a := quietAccelerator(t, configs.Accelerator{Name: "x", Policy: "lag", Accounts: "mrq"})
	page := attachPage(t, a, "a")
	member := gate.Join(page, a.Bell, mustSlot(t, page))
	member.Spend(new(gate.Ticket), accel.Usage{Class: accel.CopyOut, End: 1e9})
	m := a.members[0]
	m.hold(hardware.EngineTime{Compute: 7, CopyIn: 20, CopyOut: 300})
	a.turn()
	a.turn()
	st, _ := a.sched.Stat(m.ID)
	if st.Used.Compute != 7 || st.Used.Copy != 320 {
		t.Errorf("charged %+v", st.Used)
	}
}
