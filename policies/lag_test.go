package policies

import (
	"testing"
	"time"
)

// The holder keeps the accelerator across its own pause only while changing contexts would take longer than
// that: otherwise idling would cost more than it saves.
func TestLAGWaitsForItsHolderOnlyIfThatPays(t *testing.T) {
	const pause, request = ms, 5 * ms
	for _, c := range []struct {
		cost  time.Duration
		stays bool
	}{{4 * ms, true}, {ms / 5, false}} {
		p := newLAG(with(longestPause.Param, 2*ms, greatestLead.Param, 30*ms, switchCost.Param, c.cost)).(*lag)
		p.Attach(0, Domain{ID: 1})
		p.Attach(0, Domain{ID: 2})
		now := Time(time.Second)
		for range 8 { // alone, the length of 1's pauses is learned
			p.Wake(now, 1, Arrived)
			p.Pick(now)
			now = now.Add(request)
			p.Charge(now, 1, Usage{Compute: request, Requests: 1})
			p.Wake(now, 1, Drained)
			p.Pick(now)
			now = now.Add(pause)
			p.Charge(now, 1, Usage{Pauses: 1, Paused: pause})
		}
		p.members[2].time = p.members[1].time // neither is behind
		p.Wake(now, 2, Arrived)
		d, ok, _ := p.Pick(now)
		switch holder := p.holder; {
		case c.stays && (holder == nil || holder.id != 1):
			t.Errorf("a change costs %v: domain 1 lost the accelerator in its pause of %v: %+v", c.cost, pause, d)
		case !c.stays && (!ok || d.Op != Revoke || d.Lease.Domain != 1):
			t.Errorf("a change costs %v: domain 1 keeps the accelerator in its pause of %v: %+v", c.cost, pause, d)
		}
	}
}

// The length of a domain's pauses is the reported one, even if the report of its work comes late: a request
// that finds the gate open is seen only at the next look.
func TestLAGLearnsPausesToldLate(t *testing.T) {
	const pause = ms / 2
	p := newLAG(with(longestPause.Param, 2*ms)).(*lag)
	p.Attach(0, Domain{ID: 1})
	now := Time(time.Second)
	for i := range 8 {
		p.Wake(now, 1, Arrived)
		now = now.Add(9 * ms)
		p.Wake(now.Add(-3*ms), 1, Drained)
		now = now.Add(9 * ms)
		p.Charge(now, 1, Usage{Compute: 3 * ms, Requests: i, Pauses: i, Paused: time.Duration(i) * pause})
	}
	if r := p.members[1]; r.pause != pause || r.rests != 0 {
		t.Errorf("pauses are %v long, and %d ‰ too long to wait for; want %v, 0", r.pause, r.rests, pause)
	}
}

// No domain is waited for longer than Wait, even if pauses vary, and a domain whose pauses are mostly longer
// isn't waited for at all.
func TestLAGWaitsNoLongerThanWait(t *testing.T) {
	const wait = 2 * ms
	for _, c := range []struct {
		pauses []time.Duration
		waits  bool
	}{
		{[]time.Duration{ms / 10, 19 * ms / 10}, true},
		{[]time.Duration{ms / 10, 5 * ms}, false},
	} {
		p := newLAG(with(longestPause.Param, wait, greatestLead.Param, 30*ms)).(*lag)
		p.Attach(0, Domain{ID: 1})
		p.Attach(0, Domain{ID: 2})
		now := Time(time.Second)
		for i := range 16 {
			p.Wake(now, 1, Arrived)
			p.Pick(now)
			now = now.Add(ms)
			p.Charge(now, 1, Usage{Compute: ms, Requests: 1})
			p.Wake(now, 1, Drained)
			now = now.Add(c.pauses[i%2])
			p.Charge(now, 1, Usage{Pauses: 1, Paused: c.pauses[i%2]})
		}
		p.Wake(now, 1, Arrived)
		p.Wake(now, 1, Drained)
		p.members[2].time = p.members[1].time + 1<<40 // 1 is far behind
		p.Wake(now, 2, Arrived)
		p.Pick(now)
		lease, waits := p.granted, p.holder != nil && p.holder.id == 1
		if waits != c.waits || waits && (lease.Until <= now || lease.Until > now.Add(wait)) {
			t.Errorf("pauses of %v: waits %v until %v later, want %v and at most %v", c.pauses, waits, lease.Until.Sub(now), c.waits, wait)
		}
	}
}

// Of many pauses of microseconds within a run of requests one is longer, at its end. The domain is waited for
// all the same, if the alternative is much longer.
func TestLAGWaitsForAPartOfALongRequest(t *testing.T) {
	for _, c := range []struct {
		request time.Duration // of the rival
		waits   bool
	}{{24 * ms, true}, {ms, false}} {
		p := newLAG(with(longestPause.Param, 2*ms)).(*lag)
		p.Attach(0, Domain{ID: 1})
		p.Attach(0, Domain{ID: 2})
		now := Time(time.Second)
		for range 64 {
			p.Charge(now, 2, Usage{Compute: c.request, Requests: 1})
			p.Wake(now, 1, Arrived)
			p.Pick(now)
			now = now.Add(ms)
			p.Charge(now, 1, Usage{Compute: ms, Requests: 1})
			p.Wake(now, 1, Drained)
			now = now.Add(ms / 50)
			p.Charge(now, 1, Usage{Pauses: 1, Paused: ms / 50})
		}
		p.Wake(now, 1, Arrived)
		p.Wake(now, 2, Arrived)
		p.Pick(now)
		p.members[2].time = p.members[1].time + 1<<40 // 1 is far behind
		p.queued.fix(p.members[2])
		p.Wake(now, 1, Drained)
		late := now.Add(ms / 2)
		for _, ok, _ := p.Pick(late); ok; _, ok, _ = p.Pick(late) {
		}
		if waits := p.holder != nil && p.holder.id == 1; waits != c.waits {
			t.Errorf("beside requests of %v, after half a millisecond: waits %v, want %v", c.request, waits, c.waits)
		}
	}
}

// A domain that was expected back, and didn't come, starts level with the others: it saves up nothing while
// another works alone for seconds.
func TestLAGForgetsWhoDidNotComeBack(t *testing.T) {
	p := newLAG(with(longestPause.Param, 2*ms)).(*lag)
	p.Attach(0, Domain{ID: 1})
	p.Attach(0, Domain{ID: 2})
	now := Time(time.Second)
	pick := func() {
		for _, ok, _ := p.Pick(now); ok; _, ok, _ = p.Pick(now) {
		}
	}
	p.Wake(now, 2, Arrived)
	pick()
	for range 16 { // both work, 1 with short pauses
		p.Wake(now, 1, Arrived)
		pick()
		now = now.Add(ms)
		p.Charge(now, 1, Usage{Compute: ms, Requests: 1})
		p.Wake(now, 1, Drained)
		pick()
		now = now.Add(ms / 5)
		p.Charge(now, 1, Usage{Pauses: 1, Paused: ms / 5})
	}
	now = now.Add(3 * ms)
	pick()
	for range 1000 { // 2 alone, for ten seconds
		now = now.Add(10 * ms)
		p.Charge(now, 2, Usage{Compute: 10 * ms, Requests: 1})
		pick()
	}
	p.Wake(now, 1, Arrived)
	if lead := p.members[2].lead(p.members[1]); lead > 40*ms {
		t.Errorf("who was away for ten seconds is %v behind", lead)
	}
}

// A domain that uses little for long, with pauses too short to count, may not save that up and then have the
// accelerator to itself for seconds.
func TestLittleUseIsNotSavedUp(t *testing.T) {
	for _, c := range []struct {
		name              string
		k, think, request time.Duration
	}{
		{"lag", ms / 2, 10 * ms, ms},
		{"lag", ms / 20, 3 * ms / 2, 5 * ms},
		{"drr", ms / 10, ms, ms},
	} {
		p, err := Choice{Policy: c.name}.New()
		if err != nil {
			t.Fatal(err)
		}
		m := newModel(p[0], 1)
		a := &client{id: 1, kernels: []time.Duration{c.k}, think: c.think, burst: 1}
		b := &client{id: 2, kernels: []time.Duration{c.request}}
		m.add(a)
		m.add(b)
		m.run(Time(20 * time.Second))
		a.think, a.burst = 2, 1<<40 // backlogged from now on
		a.kernels = []time.Duration{ms}
		b.kernels = a.kernels
		used := b.used
		m.run(Time(26 * time.Second))
		if got := b.used - used; got < 2*time.Second {
			t.Errorf("%s: beside one that had asked for %v per %v a backlogged domain had %v of six seconds", c.name, c.k, c.think, got)
		}
	}
}

// A lease with a budget is re-evaluated when the budget may be used up: a long request reports its use only
// then.
func TestLagLooksAtBudgets(t *testing.T) {
	s := NewScheduler(mustNew(t, "lag", Production))
	for id := ID(1); id <= 2; id++ {
		s.Step(0, &Event{Kind: Attach, Domain: Domain{ID: id, Credits: 256}})
		s.Step(0, &Event{Kind: Wake, Domain: Domain{ID: id}, Signal: Arrived})
	}
	actions := s.Ready(0)
	if len(actions) != 1 || actions[0].Lease.Kind != Budget {
		t.Fatalf("%+v", actions)
	}
	if want := Time(actions[0].Lease.Amount); s.Next() != want {
		t.Errorf("a lease of %v is looked at after %v", time.Duration(want), time.Duration(s.Next()))
	}
}

// with returns options with these durations, in pairs of a parameter and its value.
func with(pairs ...any) Options {
	var o Options
	for i := 0; i < len(pairs); i += 2 {
		o.SetOption(pairs[i].(*Param), int64(pairs[i+1].(time.Duration)))
	}
	return o.filled()
}

// A lead is described without a sign, to the microsecond.
func TestPlace(t *testing.T) {
	for lead, want := range map[time.Duration]string{0: "0s ahead of", 1234567: "1.235ms ahead of", -6962532012: "6.962532s behind"} {
		if got := place(lead); got != want {
			t.Errorf("%d: got %q, want %q", lead, got, want)
		}
	}
}
