package sched

import (
	"slices"
	"testing"
	"time"

	"pegasus/backend/gate"
	"pegasus/internal/testkit"
	"pegasus/policies"
	"pegasus/vcpu"
)

// The follower uses only windows and budgets that last for a while, and not without end.
func TestLeasesThatCPUsFollow(t *testing.T) {
	now := int64(time.Second)
	in := func(d time.Duration) vcpu.Time { return vcpu.Time(now).Add(d) }
	for _, c := range []struct {
		lease policies.Lease
		want  vcpu.Time
	}{
		{policies.Lease{Kind: policies.Window, Until: in(30 * time.Millisecond)}, in(30 * time.Millisecond)},
		{policies.Lease{Kind: policies.Window, Until: in(3 * time.Millisecond)}, 0},
		{policies.Lease{Kind: policies.Window, Until: vcpu.Forever}, 0},
		{policies.Lease{Kind: policies.Budget, Amount: int64(8 * time.Millisecond), Until: vcpu.Forever}, in(8 * time.Millisecond)},
		{policies.Lease{Kind: policies.Budget, Amount: int64(time.Millisecond), Until: vcpu.Forever}, 0},
		{policies.Lease{Kind: policies.Requests, Amount: 8, Until: vcpu.Forever}, 0},
	} {
		var followed []vcpu.Time
		a := &Accelerator{follow: func(_ string, until vcpu.Time) { followed = append(followed, until) }}
		m := &Attachment{Domain: "x", window: 1}
		a.reportWindow(now, m, policies.Action{Open: true, Lease: c.lease})
		if !slices.Equal(followed, []vcpu.Time{c.want}) {
			t.Errorf("%+v: %v, not %v", c.lease, followed, c.want)
		}
		followed = nil
		a.reportWindow(now, m, policies.Action{Open: true, Lease: c.lease})
		a.reportWindow(now, m, policies.Action{})
		want := []vcpu.Time{0}
		if c.want == 0 {
			want = nil
		}
		if !slices.Equal(followed, want) {
			t.Errorf("%+v: when it is over it tells %v, not %v", c.lease, followed, want)
		}
	}
}

// The scheduler loop reports its windows.
func TestWindowsAreTold(t *testing.T) {
	a := busyAccelerator(t, "rr", "one", "two")
	a.settings.CPUFollows = true
	had := map[string]bool{}
	a.follow = func(domain string, until vcpu.Time) {
		if until != 0 {
			had[domain] = true
		}
	}
	for _, m := range a.members {
		acquire(t, gate.Join(m.Page, a.Bell, mustSlot(t, m.Page)), gate.Compute)
	}
	testkit.Eventually(t, "both had a window", func() bool { a.turn(); return len(had) == 2 })
}
