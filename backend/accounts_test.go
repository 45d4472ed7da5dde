package backend

import (
	"strings"
	"testing"
	"time"

	"pegasus/backend/gate"
	"pegasus/configs"
	"pegasus/policies"
	"pegasus/vcpu"
)

// victimAndThief returns a daemon with two domains on an accelerator: victim, which always has work, and thief.
func victimAndThief(t *testing.T) (*Daemon, *accelerator) {
	d := coordinated(t, "accc", &cpus{}, map[string]int{"victim": 1, "thief": 2})
	a := d.accelerators[0]
	a.passing = func(name string) bool { return strings.HasPrefix(name, "new") }
	tell(a, "victim", policies.Event{Kind: policies.Wake, Signal: policies.Arrived})
	a.sched.Ready(vcpu.Time(gate.Now()))
	return d, a
}

func tell(a *accelerator, name string, e policies.Event) {
	e.Domain.ID = a.ids[name]
	a.step(gate.Now(), e)
}

// uses charges a domain for a burst.
func uses(a *accelerator, name string, burst time.Duration) {
	tell(a, name, policies.Event{Kind: policies.Charge, Used: policies.Usage{Compute: burst}})
}

func owes(a *accelerator, name string) time.Duration { return -a.balances()[name][0] }

func member(a *accelerator, name string) *avcpu {
	for _, m := range a.members {
		if m.domain == name {
			return m
		}
	}
	return nil
}

// A domain whose last process has left continues its account when another process arrives.
func TestAccountStays(t *testing.T) {
	_, a := victimAndThief(t)
	id := a.ids["thief"]
	uses(a, "thief", time.Minute)
	a.detach(member(a, "thief"))
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
	_, a := victimAndThief(t)
	for _, name := range []string{"new0", "new1", "declared", "new2"} {
		attachPage(t, a, name)
	}
	uses(a, "new0", time.Minute)
	uses(a, "new1", 2*time.Minute)
	uses(a, "declared", 3*time.Minute)
	uses(a, "new2", 4*time.Minute) // it stays
	for _, name := range []string{"new0", "new1", "declared"} {
		a.detach(member(a, name))
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

// The next daemon restores domains' debts, whether or not they have processes then.
func TestAccountsOutliveTheDaemon(t *testing.T) {
	d, a := victimAndThief(t)
	uses(a, "thief", time.Minute)
	uses(a, "victim", time.Hour)
	a.detach(member(a, "thief"))
	d.domains["thief"].on, d.domains["thief"].avcpu = nil, nil
	d.save()

	next := coordinated(t, "lag", &cpus{}, nil)
	next.opt.RuntimeDir = d.opt.RuntimeDir
	s, err := next.readState()
	if err != nil {
		t.Fatal(err)
	}
	next.restoreAccounts(&s)
	b := next.accelerators[0]
	attachPage(t, b, "victim")
	for name, want := range map[string]time.Duration{"victim": time.Hour, "thief": time.Minute} {
		if owed := owes(b, name); (owed - want).Abs() > time.Second {
			t.Errorf("%s owes %v, not %v", name, owed, want)
		}
	}
	next.save()
	if next.drifted() {
		t.Error("nothing has happened since the state was saved")
	}
	uses(b, "victim", accountDrift+time.Millisecond)
	if !next.drifted() {
		t.Error("a change is not noticed")
	}
}

// With several accounts each is kept, and a change of settings merges two into one.
func TestAccountsOfEngines(t *testing.T) {
	_, a := victimAndThief(t)
	a.restoreAccount(configs.Domain{Name: "left", Credits: 256}, policies.Balances{-time.Second, -2 * time.Second})
	if owed := owes(a, "left"); owed < 2900*time.Millisecond {
		t.Errorf("with one account it owes %v", owed)
	}
	c := a.settings
	c.Accounts = "mrq"
	p, err := newPolicies(c)
	if err != nil {
		t.Fatal(err)
	}
	a.configure(c, p)
	a.restoreAccount(configs.Domain{Name: "other", Credits: 256}, policies.Balances{-time.Second, -2 * time.Second})
	if b := a.balances()["other"]; b[0] > -900*time.Millisecond || b[1] > -1900*time.Millisecond {
		t.Errorf("with two accounts it is owed %v", b)
	}
}
