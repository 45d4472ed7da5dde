package backend

import (
	"testing"
	"time"

	"pegasus/policies"
	"pegasus/vcpu"
)

// A trace of use has the data from which shares are computed, and nothing else.
func TestAboutUse(t *testing.T) {
	event := func(k policies.EventKind, u vcpu.Usage) policies.Record {
		return policies.Record{Event: &policies.Event{Kind: k, Used: u}}
	}
	for _, c := range []struct {
		what string
		r    policies.Record
		want bool
	}{
		{"the policy at the beginning", policies.Record{Choice: &policies.Choice{}}, true},
		{"who came", event(policies.Attach, vcpu.Usage{}), true},
		{"a kernel", event(policies.Charge, vcpu.Usage{Compute: time.Millisecond}), true},
		{"a copy", event(policies.Charge, vcpu.Usage{Copy: time.Millisecond}), true},
		{"idleness", event(policies.Charge, vcpu.Usage{Idle: time.Millisecond}), false},
		{"a request at the gate", event(policies.Head, vcpu.Usage{}), false},
		{"a decision", policies.Record{Ready: true}, false},
	} {
		if got := aboutUse(c.r); got != c.want {
			t.Errorf("%s: %v", c.what, got)
		}
	}
}
