package sched

import (
	"testing"
	"time"

	"pegasus/policies"
	"pegasus/vcpu"
)

// One sample precedes each decision, by the recent duration of a sample, and samples never take a large part of the
// time.
func TestGlances(t *testing.T) {
	const ms, tick = time.Millisecond, 30 * time.Millisecond
	at := func(d time.Duration) vcpu.Time { return vcpu.Time(time.Hour).Add(d) }
	var g preDecisionSampling
	for _, c := range []struct{ due, from, took time.Duration }{
		{30 * ms, 30 * ms, 1 * ms},  // the duration is unknown
		{60 * ms, 59 * ms, 2 * ms},  // as long as the last sample took
		{90 * ms, 88 * ms, ms / 10}, // a sample took that long once
		{92 * ms, 90250 * time.Microsecond, ms / 10},
		{92100 * time.Microsecond, 91250 * time.Microsecond, 9 * ms}, // not sooner than a millisecond after the last one
		{190 * ms, 187 * ms, ms},                                     // at most a part of a tick
	} {
		if is := g.next(at(c.due)); is != at(c.from) || g.isDue(at(c.from)-1, at(c.due)) || !g.isDue(at(c.from), at(c.due)) {
			t.Errorf("before %v it is glanced at %v, not %v", c.due, is.Sub(at(0)), c.from)
		}
		g.of = at(c.due)
		g.made(at(c.from), at(c.from+c.took), tick)
		if g.next(at(c.due)) != at(c.due) || g.isDue(at(c.due), at(c.due)) {
			t.Errorf("before %v it is glanced twice", c.due)
		}
	}
	if g.isDue(at(time.Minute), vcpu.Forever) {
		t.Error("it is glanced although nothing is decided")
	}
	g = preDecisionSampling{at: at(0), took: 9 * ms, lead: 3 * ms}
	if is := g.next(at(40 * ms)); is != at(40*ms) || g.isDue(at(40*ms), at(40*ms)) || !g.isDue(at(90*ms), at(40*ms)) {
		t.Errorf("it is glanced at %v, which takes more than a tenth of the time", is.Sub(at(0)))
	}
	g = preDecisionSampling{took: ms, last: ms}
	g.made(at(0), at(200*ms), tick) // the process was stopped meanwhile
	if !g.isDue(at(30*ms), at(30*ms)) {
		t.Error("a look that took long once is the last one for long")
	}
	g.made(at(30*ms), at(230*ms), tick)
	if g.isDue(at(260*ms), at(260*ms)) {
		t.Error("looks that take long are made for more than a tenth of the time")
	}
}

// An accelerator's loop samples the CPUs before a decision that depends on them, and before no other.
func TestLoopGlances(t *testing.T) {
	for policy, want := range map[string]int{"cosched": 1, "augc": 1, "xc": 0} {
		a, seen := busyAccelerator(t, policy, "one", "two"), 0
		now := a.now()
		a.now = func() int64 { return now }
		a.sample = func(period time.Duration) bool {
			if seen++; period != a.settings.Tick {
				t.Errorf("it is looked at for the coming %v", period)
			}
			return true
		}
		a.mu.Lock()
		for _, m := range a.members {
			a.wake(now, 0, m, policies.Arrived)
		}
		a.sched.Ready(vcpu.Time(now))
		a.mu.Unlock()
		a.samplePending()
		if seen != 0 {
			t.Errorf("under %s it is looked long before the decision", policy)
		}
		if due := a.sched.Next(); due != vcpu.Forever {
			now = int64(due)
		}
		a.samplePending()
		a.samplePending()
		if seen != want {
			t.Errorf("under %s it is looked %d times, not %d", policy, seen, want)
		}
	}
}
