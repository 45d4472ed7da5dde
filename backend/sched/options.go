package sched

import (
	"maps"
	"slices"

	"pegasus/configs"
	"pegasus/policies"
	"pegasus/vcpu"
)

var (
	accounts = map[string]policies.Accounts{"sdq": policies.SDQ, "mrq": policies.MRQ}
	reserves = map[string]vcpu.ReserveKind{
		"none": vcpu.NoReserve, "pe": vcpu.Posterior, "ae": vcpu.Apriori, "background": vcpu.Background,
	}
)

// Specification parses TimeGraph's entries for configs.Options.
func Specification(text string) (map[string]configs.Promise, []error) {
	entries, wrong := policies.ParseSpecification(text)
	promises := make(map[string]configs.Promise, len(entries))
	for _, e := range slices.Backward(entries) { // the first of a name counts
		p := e.Promise
		promises[e.Name] = configs.Promise{
			Priority: p.Priority, Throughput: p.Throughput, Reserve: reserveName(p.Reserve.Kind),
			ReserveCost: p.Reserve.Cost, ReservePeriod: p.Reserve.Period, ReserveName: p.Reserve.Shared,
		}
	}
	errs := make([]error, len(wrong))
	for i, err := range wrong {
		errs[i] = err
	}
	return promises, errs
}

// reserveName returns the configuration's name of a kind of reserve.
func reserveName(kind vcpu.ReserveKind) string {
	for _, name := range slices.Sorted(maps.Keys(reserves)) {
		if reserves[name] == kind {
			return name
		}
	}
	return "none"
}

// promiseOf returns a domain's guarantees beyond its credits.
func promiseOf(c configs.Domain) vcpu.Promise {
	return vcpu.Promise{
		SLO: c.SLO, Bandwidth: c.Bandwidth, Group: c.Group, Priority: c.Priority,
		Throughput: c.Throughput, Interactive: c.Interactive, Period: c.Period, Deadline: c.Deadline,
		Reserve: vcpu.Reserve{Kind: reserves[c.Reserve], Shared: c.ReserveName, Cost: c.ReserveCost, Period: c.ReservePeriod},
	}
}

// NewPolicies returns an accelerator's policy, or one policy per engine class if the classes are accounted separately.
func NewPolicies(c configs.Accelerator) ([]policies.Policy, error) {
	return Choice(c).New()
}

// Choice returns the policy, with its options, that the settings choose.
func Choice(c configs.Accelerator) policies.Choice {
	return policies.Choice{Policy: c.Policy, Options: policyOptions(c)}
}

func policyOptions(c configs.Accelerator) policies.Options {
	o := policies.Options{
		Accounts: accounts[c.Accounts], Tick: c.Tick, RotationCap: c.RotationCap, IdleYield: c.IdleYield, Values: c.Params,
	}
	if c.Change > 0 {
		o.MeasuredSwitch(c.Change)
	}
	if c.Mode == "paper" {
		o.Mode = policies.Paper
		o.IdleYield = 0
	}
	return o
}

// sharesOf returns a domain's credits and guarantees in the policy's form.
func sharesOf(id vcpu.ID, c configs.Domain, cpu vcpu.Credits) vcpu.Domain {
	return vcpu.Domain{ID: id, Credits: vcpu.Credits(c.Credits), CPU: cpu, Promise: promiseOf(c)}
}
