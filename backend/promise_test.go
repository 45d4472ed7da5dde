package backend

import (
	"testing"
	"time"

	"pegasus/configs"
	"pegasus/policies"
	"pegasus/vcpu"
)

// TestPromises: what a configuration says is what policies are told, and every
// policy takes what a configuration says by default.
func TestPromises(t *testing.T) {
	c := configs.Default()
	for _, name := range policies.Names() {
		if _, err := policies.New(name, policyOptions(c.Accelerators[0])); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	c, err := configs.Parse("test", []byte(`
[[accelerator]]
name = "a"
order = "edf"
hold_back = "1ms"
reserve_limit = 70
[[domain]]
name = "game"
priority = 3
interactive = true
reserve = "ae"
reserve_cost = "5ms"
reserve_period = "25ms"
reserve_name = "games"
deadline = "16ms"
`), configs.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if o := policyOptions(c.Accelerators[0]); o.Order != policies.DeadlineOrder || o.HoldBack != time.Millisecond || o.ReserveLimit != 70 {
		t.Errorf("the policy is told %+v", o)
	}
	want := vcpu.Promise{
		Priority: 3, Interactive: true, Deadline: 16 * time.Millisecond,
		Reserve: vcpu.Reserve{Kind: vcpu.Apriori, Shared: "games", Cost: 5 * time.Millisecond, Period: 25 * time.Millisecond},
	}
	if got := sharesOf(1, c.Domains[0]).Promise; got != want {
		t.Errorf("the domain is promised %+v, not %+v", got, want)
	}
}
