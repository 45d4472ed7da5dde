package fits

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"pegasus/configs"
	"pegasus/policies"
)

// device is an accelerator of 8 GiB without domains.
func device(policy string) Accelerator {
	c := configs.Default()
	a := Accelerator{Settings: c.Accelerators[0], Memory: 8 << 30}
	a.Settings.Policy = policy
	a.Choice = policies.Choice{Policy: policy, Options: policies.Options{Values: a.Settings.Params}}
	return a
}

func domain(name string, credits int, change func(*configs.Domain)) Domain {
	d := configs.Default().Template
	d.Name, d.Credits = name, credits
	if change != nil {
		change(&d)
	}
	return Domain{Settings: d, Share: policies.Credits(credits)}
}

func TestAnswer(t *testing.T) {
	for _, c := range []struct {
		what   string
		policy string
		there  []Domain
		new    Domain
		why    string // part of the reason; empty: it fits
		warn   string
	}{
		{"an empty device", "accc", nil, domain("n", 256, nil), "", ""},
		{"all memory", "accc", nil, domain("n", 256, func(d *configs.Domain) { d.Memory = 8 << 30 }), "", ""},
		{"more memory than there is", "accc", nil, domain("n", 256, func(d *configs.Domain) { d.Memory = 9 << 30 }), "the accelerator has 8GiB", ""},
		{"guarantees", "accc", []Domain{domain("a", 256, func(d *configs.Domain) { d.Guarantee = 6 << 30 })},
			domain("n", 256, func(d *configs.Domain) { d.Guarantee = 3 << 30 }), "add up to 9GiB", ""},
		{"another's objective", "accc", []Domain{domain("a", 256, func(d *configs.Domain) { d.SLO = 600 })}, domain("n", 256, nil), "", `domain "a": entitled to 50.0 %, less than its objective of 60.0 %`},
		{"an objective that the policy makes up for", "slaf", []Domain{domain("a", 256, func(d *configs.Domain) { d.SLO = 600 })}, domain("n", 256, nil), "", ""},
		{"too many objectives", "slaf", []Domain{domain("a", 256, func(d *configs.Domain) { d.SLO = 600 })},
			domain("n", 256, func(d *configs.Domain) { d.SLO = 500 }), "", "add up to 110.0 %"},
		{"reserves", "credit", []Domain{domain("a", 256, reserve(50, ""))}, domain("n", 256, reserve(50, "")), "add up to 100.0 %, more than reserve_limit, 90 %", ""},
		{"a shared reserve", "credit", []Domain{domain("a", 256, reserve(50, "x"))}, domain("n", 256, reserve(50, "x")), "", ""},
	} {
		a := device(c.policy)
		a.Domains = c.there
		f := a.Answer(c.new)
		if why := strings.Join(f.Reasons, "\n"); f.Fits != (c.why == "") || !strings.Contains(why, c.why) {
			t.Errorf("%s: fits %v, %q; want %q", c.what, f.Fits, why, c.why)
		}
		if warn := strings.Join(f.Warnings, "\n"); (warn == "") != (c.warn == "") || !strings.Contains(warn, c.warn) {
			t.Errorf("%s: warnings %q, want %q", c.what, warn, c.warn)
		}
	}
	limited := device("accc")
	limited.Settings.MaxCredits, limited.Domains = 512, []Domain{domain("a", 300, nil)}
	if f := limited.Answer(domain("n", 213, nil)); f.Fits || !strings.Contains(f.Reasons[0], "513 credits together, of max_credits = 512") {
		t.Errorf("more than max_credits: %+v", f)
	}
	if f := limited.Answer(domain("n", 212, nil)); !f.Fits {
		t.Errorf("max_credits: %+v", f)
	}
	full := device("accc")
	full.Settings.MaxDomains = 0
	if f := full.Answer(domain("n", 256, nil)); f.Fits {
		t.Error("a domain fits where no more are admitted")
	}
}

func reserve(percent int, name string) func(*configs.Domain) {
	return func(d *configs.Domain) {
		d.Reserve, d.ReserveName = "pe", name
		d.ReserveCost, d.ReservePeriod = time.Duration(percent)*time.Millisecond, 100*time.Millisecond
	}
}

// For any domains the entitled parts add up to 1 before and after, and a new domain takes from all in proportion.
func TestAnyEntitlements(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for range 1000 {
		a := device("accc")
		for i := range rnd.IntN(20) {
			a.Domains = append(a.Domains, domain(fmt.Sprint("d", i), 1+rnd.IntN(65535), nil))
		}
		f := a.Answer(domain("n", 1+rnd.IntN(65535), nil))
		before, after := 0.0, f.Domain.After
		for _, o := range f.Others {
			before += o.Before
			after += o.After
			if o.After >= o.Before || math.Abs(o.After/o.Before-(1-f.Domain.After)) > 1e-9 {
				t.Fatalf("%+v beside %+v", o, f.Domain)
			}
		}
		if len(f.Others) > 0 && math.Abs(before-1) > 1e-9 || math.Abs(after-1) > 1e-9 {
			t.Fatalf("the parts add up to %v before, %v after", before, after)
		}
	}
}

// A prediction agrees with the credits where all domains always have work, shows an idle domain's demand where it is
// less, and is the same each time.
func TestPredict(t *testing.T) {
	for _, policy := range policies.Names() {
		a := device(policy)
		a.Domains = []Domain{domain("a", 256, nil), domain("b", 512, nil)}
		a.Domains[1].Kernel, a.Domains[1].Demand = 2*time.Millisecond, 0.1
		d := domain("n", 768, reserve(20, ""))
		f, again := a.Answer(d), a.Answer(d)
		begin := time.Now()
		if err := a.Predict(&f, d, 5*time.Second); err != nil {
			t.Fatalf("%s: %v", policy, err)
		}
		t.Logf("%s: simulated %v in %v: a %+v, b %+v, n %+v", policy, time.Duration(f.Simulated), time.Since(begin), *f.Others[0].Predicted, *f.Others[1].Predicted, *f.Domain.Predicted)
		if err := a.Predict(&again, d, 5*time.Second); err != nil || !reflect.DeepEqual(f, again) {
			t.Errorf("%s: another prediction of the same is %+v, %v", policy, again, err)
		}
		if sum := f.Others[0].Predicted.Share + f.Others[1].Predicted.Share + f.Domain.Predicted.Share; math.Abs(sum-1) > 0.02 {
			t.Errorf("%s: the shares add up to %v", policy, sum)
		}
		if policy != "accc" {
			continue
		}
		if b := f.Others[1].Predicted.Share; b > 0.15 {
			t.Errorf("a domain that computes for a tenth of the time: %v", b)
		}
		if ratio := f.Domain.Predicted.Share / f.Others[0].Predicted.Share; math.Abs(ratio-3) > 0.4 {
			t.Errorf("shares at credits 768 and 256: %v times, want 3", ratio)
		}
	}
}

// Domains of a group have a share each, although they have one turn together.
func TestPredictGroup(t *testing.T) {
	a := device("credit")
	group := func(d *configs.Domain) { d.Group = `a "b" \ü` }
	a.Domains = []Domain{domain("a", 256, nil), domain("b", 256, group)}
	d := domain("n", 256, group)
	f := a.Answer(d)
	if err := a.Predict(&f, d, time.Second); err != nil {
		t.Fatal(err)
	}
	sum := f.Domain.Predicted.Share
	for _, o := range append(f.Others, f.Domain) {
		if o.Predicted.Share <= 0 {
			t.Errorf("domain %s: share %v, want more than 0", o.Domain, o.Predicted.Share)
		}
	}
	for _, o := range f.Others {
		sum += o.Predicted.Share
	}
	if math.Abs(sum-1) > 0.02 {
		t.Errorf("the shares add up to %v, want 1", sum)
	}
}

// A prediction is bounded in its work: for the shortest requests and the most domains, too.
func TestPredictIsBounded(t *testing.T) {
	a := device("accc")
	for i := range MostSimulated - 1 {
		d := domain(fmt.Sprint("d", i), 256, nil)
		d.Kernel = time.Nanosecond
		a.Domains = append(a.Domains, d)
	}
	d := domain("n", 256, nil)
	f := a.Answer(d)
	begin := time.Now()
	if err := a.Predict(&f, d, time.Minute); err != nil || f.Simulated == 0 || f.Domain.Predicted == nil {
		t.Fatalf("%+v, %v", f, err)
	}
	t.Logf("simulated %v in %v", time.Duration(f.Simulated), time.Since(begin))
	a.Domains = append(a.Domains, d)
	f = a.Answer(d)
	if err := a.Predict(&f, d, time.Minute); err != nil || f.Simulated != 0 || len(f.Warnings) == 0 {
		t.Errorf("%d domains: %+v, %v", len(a.Domains)+1, f, err)
	}
}
