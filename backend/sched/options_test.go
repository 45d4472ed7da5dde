package sched

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pegasus/configs"
	"pegasus/policies"
	"pegasus/vcpu"
)

// TestPromises: policies receive the configured values, and every policy accepts the configuration's defaults.
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
boost = 0
max_skip = 9
debt_af = 33
by_credits = true
scan = "2s"
wait = "3ms"
ahead = "7ms"
switch_cost = "90us"
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
	o := policyOptions(c.Accelerators[0])
	for key, want := range map[string]int64{
		"order": 3, "hold_back": int64(time.Millisecond), "reserve_limit": 70, "boost": 0, "max_skip": 9, "debt_af": 33, "by_credits": 1,
		"scan": int64(2 * time.Second), "wait": int64(3 * time.Millisecond), "ahead": int64(7 * time.Millisecond), "switch_cost": int64(90 * time.Microsecond),
	} {
		if got := o.Get(policies.Parameter(key)); got != want {
			t.Errorf("%s: the policy gets %d, want %d", key, got, want)
		}
	}
	want := vcpu.Promise{
		Priority: 3, Interactive: true, Deadline: 16 * time.Millisecond,
		Reserve: vcpu.Reserve{Kind: vcpu.Apriori, Shared: "games", Cost: 5 * time.Millisecond, Period: 25 * time.Millisecond},
	}
	if got := sharesOf(1, c.Domains[0], 0).Promise; got != want {
		t.Errorf("the domain is promised %+v, not %+v", got, want)
	}
}

// A policy receives the values of a specification's entry.
func TestSpecification(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tasks.spec")
	entries := "# players\n<game:PRT:AE@players:*:5000:25000>\n<game:HT:none:7:0:0>\n<X:HT:none:100:0:0>\n<odd:PRT:XE:1:1:1>\n"
	if err := os.WriteFile(path, []byte(entries), 0o644); err != nil {
		t.Fatal(err)
	}
	c, err := configs.Parse("test", []byte("[daemon]\nspecification = \""+path+"\"\n[[domain]]\nname = \"game\"\n"), configs.Options{Specification: Specification})
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Warnings) != 1 || !strings.Contains(c.Warnings[0], "line 5: resv is \"XE\"") {
		t.Errorf("warnings %q", c.Warnings)
	}
	for name, want := range map[string]vcpu.Promise{
		"game": {Reserve: vcpu.Reserve{Kind: vcpu.Apriori, Shared: "players", Cost: 5 * time.Millisecond, Period: 25 * time.Millisecond}},
		"X":    {Priority: 100, Throughput: true},
		"odd":  {Reserve: vcpu.Reserve{Kind: vcpu.Background}},
		"none": {Reserve: vcpu.Reserve{Kind: vcpu.Background}},
	} {
		d, err := c.Domain(name)
		if err != nil {
			t.Fatal(err)
		}
		if got := sharesOf(1, d, 0).Promise; got != want {
			t.Errorf("%s is promised %+v, not %+v", name, got, want)
		}
	}
}

// The cost of a context switch is the measured one, unless it is configured.
func TestMeasuredChange(t *testing.T) {
	cost := policies.Parameter("switch_cost")
	standard := time.Duration(cost.Default)
	for _, c := range []struct{ said, measured, want time.Duration }{
		{standard, 0, standard},
		{standard, 90 * time.Microsecond, 90 * time.Microsecond},
		{time.Millisecond, 90 * time.Microsecond, time.Millisecond},
	} {
		a := configs.Accelerator{Change: c.measured}
		a.Params.Set(cost, int64(c.said))
		o := policyOptions(a)
		if got := time.Duration(o.Get(cost)); got != c.want {
			t.Errorf("%v, measured %v: %v, want %v", c.said, c.measured, got, c.want)
		}
	}
}
