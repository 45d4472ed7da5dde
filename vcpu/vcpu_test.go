package vcpu

import (
	"testing"
	"time"
)

func TestTimeSaturates(t *testing.T) {
	for _, c := range []struct {
		t    Time
		d    time.Duration
		want Time
	}{
		{5, 7, 12},
		{5, -7, -2},
		{Forever, 1, Forever},
		{Forever - 3, 4, Forever},
		{Forever - 3, 3, Forever},
		{1, 1<<63 - 1, Forever},
	} {
		if got := c.t.Add(c.d); got != c.want {
			t.Errorf("%d + %d = %d, not %d", c.t, c.d, got, c.want)
		}
	}
}

func TestMoves(t *testing.T) {
	legal := map[[2]State]bool{
		{Idle, Waiting}: true, {Idle, Open}: true,
		{Waiting, Idle}: true, {Waiting, Open}: true,
		{Open, Closing}: true,
		{Closing, Idle}: true, {Closing, Waiting}: true, {Closing, Open}: true,
	}
	for from := Idle; from <= Closing; from++ {
		for to := Idle; to <= Closing; to++ {
			if got := moved(from, to); got != legal[[2]State{from, to}] {
				t.Errorf("%v → %v: legal %v", from, to, got)
			}
		}
	}
}

func moved(from, to State) (ok bool) {
	defer func() { ok = recover() == nil }()
	return from.Move(to) == to
}

func TestCredits(t *testing.T) {
	if Credits(0).OrDefault() != DefaultCredits || Credits(7).OrDefault() != 7 {
		t.Error("credits that are not set are not the default")
	}
}

func TestUsage(t *testing.T) {
	u := Usage{Compute: 1, Copy: 2, Idle: 4, Stalled: 8, Switch: 16, Requests: 32, Pauses: 64, Paused: 128}
	u.Add(&Usage{Compute: 10, Copy: 20, Idle: 40, Stalled: 80, Switch: 160, Requests: 320, Pauses: 640, Paused: 1280})
	if u != (Usage{11, 22, 44, 88, 176, 352, 704, 1408}) || u.Busy() != 33 {
		t.Errorf("%+v is busy for %d", u, u.Busy())
	}
}

// Of two domains on CPU 1 the first has little of its slice left, or of the period.
func TestScheduled(t *testing.T) {
	for _, c := range []struct {
		what          string
		first, second VCPU
		want          [2]bool
	}{
		{"it goes on", VCPU{State: Running, Next: 900}, VCPU{State: Runnable, Next: 100}, [2]bool{true, false}},
		{"the second follows", VCPU{State: Running, Next: 100}, VCPU{State: Runnable, Next: 900}, [2]bool{false, true}},
		{"somebody else does", VCPU{State: Running, Next: 100}, VCPU{State: Runnable}, [2]bool{true, false}},
		{"nothing is foretold", VCPU{State: Running}, VCPU{State: Runnable}, [2]bool{true, false}},
		{"both have half", VCPU{State: Running, Next: 500}, VCPU{State: Runnable, Next: 500}, [2]bool{true, true}},
		{"the second runs on another", VCPU{State: Running, Next: 100}, VCPU{State: Running, PCPU: 2, Next: 900}, [2]bool{true, true}},
		{"the second has just gone to sleep", VCPU{State: Running, Next: 100}, VCPU{State: Blocked, Next: 900}, [2]bool{true, true}},
	} {
		s := Sample{Domains: []Schedule{{ID: 1, VCPUs: []VCPU{c.first}}, {ID: 2, VCPUs: []VCPU{c.second}}}}
		if got := [2]bool{s.Scheduled(0), s.Scheduled(1)}; got != c.want {
			t.Errorf("%s: they are scheduled: %v, not %v", c.what, got, c.want)
		}
	}
}
