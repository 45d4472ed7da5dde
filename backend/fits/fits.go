// Package fits answers whether another domain would fit on an accelerator, and its effect on the domains there: by
// arithmetic, and by a simulation of the policy with the domains' measured demand.
//
// Callers: backend/guests, which passes a description of the accelerator; cluster/fleet, for moves between accelerators.
//
// Trust boundary: none. The settings were checked. A simulation is bounded in its number of requests.
package fits

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"pegasus/backend/control"
	"pegasus/configs"
	"pegasus/policies"
	"pegasus/sim"
)

// Domain is a domain on the accelerator.
type Domain struct {
	Settings configs.Domain
	Share    policies.Credits // to which its part is in proportion
	Kernel   time.Duration    // mean time of its requests on the engines
	Demand   float64          // part of the time that it would compute while it is alone, 0 to 1
}

// Accelerator is an accelerator with its domains.
type Accelerator struct {
	Settings  configs.Accelerator
	Choice    policies.Choice
	Memory    uint64 // bytes
	Swap      uint64
	Allocated uint64 // by all domains
	Domains   []Domain
}

// Answer answers by arithmetic.
func (a *Accelerator) Answer(d Domain) control.Fit {
	f := control.Fit{Accelerator: a.Settings.Name, Policy: a.Settings.Policy, Reasons: []string{}, Warnings: []string{}, Others: []control.FitDomain{}}
	a.checkRoom(&f, &d.Settings)
	a.checkReserves(&f, &d.Settings)
	var before, after float64
	promised := d.Settings.SLO
	for i := range a.Domains {
		before += float64(a.Domains[i].Share)
		promised += a.Domains[i].Settings.SLO
	}
	after = before + float64(d.Share)
	part := func(o *Domain, of float64) float64 {
		if !a.Choice.Owes() || of == 0 {
			return 0
		}
		return float64(o.Share) / of
	}
	for i := range a.Domains {
		o := &a.Domains[i]
		f.Others = append(f.Others, a.effect(o, part(o, before), part(o, after)))
	}
	f.Domain = a.effect(&d, 0, part(&d, after))
	for _, o := range append(f.Others[:len(f.Others):len(f.Others)], f.Domain) {
		if o.Breaks {
			f.Warnings = append(f.Warnings, fmt.Sprintf("domain %q: entitled to %.1f %%, less than its objective of %.1f %%", o.Domain, 100*o.After, 100*o.Objective))
		}
	}
	if promised > 1000 {
		f.Warnings = append(f.Warnings, fmt.Sprintf("the share objectives add up to %.1f %%: not all of them can be kept", float64(promised)/10))
	}
	f.Fits = len(f.Reasons) == 0
	return f
}

func (a *Accelerator) effect(o *Domain, before, after float64) control.FitDomain {
	objective := float64(o.Settings.SLO) / 1000
	return control.FitDomain{Domain: o.Settings.Name, Before: before, After: after, Objective: objective,
		Breaks: objective > 0 && !a.Choice.Raises() && after < objective-1e-9}
}

// checkRoom checks the memory, the credits and the number of domains.
func (a *Accelerator) checkRoom(f *control.Fit, d *configs.Domain) {
	refuse := func(format string, args ...any) { f.Reasons = append(f.Reasons, fmt.Sprintf(format, args...)) }
	if n := len(a.Domains); n >= a.Settings.MaxDomains {
		refuse("%d domains are there, as many as max_domains allows", n)
	}
	credits := d.Credits
	for i := range a.Domains {
		credits += a.Domains[i].Settings.Credits
	}
	if most := a.Settings.MaxCredits; most > 0 && credits > most {
		refuse("credits = %d: the domains would have %d credits together, of max_credits = %d", d.Credits, credits, most)
	}
	guaranteed := d.Guarantee
	for i := range a.Domains {
		guaranteed += a.Domains[i].Settings.Guarantee
	}
	if d.Guarantee > 0 && uint64(guaranteed) > a.Memory {
		refuse("memory_guarantee = %v: the guarantees add up to %v, more than the device's %v", d.Guarantee, guaranteed, configs.Size(a.Memory))
	}
	all := a.Memory + a.Swap
	switch {
	case uint64(d.Memory) > all:
		refuse("memory = %v: the accelerator has %v", d.Memory, configs.Size(all))
	case uint64(d.Memory) > all-min(all, a.Allocated):
		refuse("memory = %v: %v of %v are free", d.Memory, configs.Size(all-min(all, a.Allocated)), configs.Size(all))
	}
}

// checkReserves checks the sum of the reserves against the policies' limit, for policies that lend requests.
func (a *Accelerator) checkReserves(f *control.Fit, d *configs.Domain) {
	part := func(d *configs.Domain) float64 {
		if d.Reserve != "pe" && d.Reserve != "ae" || d.ReservePeriod <= 0 {
			return 0
		}
		return float64(d.ReserveCost) / float64(d.ReservePeriod)
	}
	mine := part(d)
	if mine == 0 {
		return
	}
	limit, shared := policies.ReserveLimit(a.Settings.Params), map[string]bool{}
	sum := mine
	for i := range a.Domains {
		o := &a.Domains[i].Settings
		if o.ReserveName != "" && (shared[o.ReserveName] || o.ReserveName == d.ReserveName) {
			continue
		}
		shared[o.ReserveName] = true
		sum += part(o)
	}
	if sum > limit+1e-9 {
		f.Reasons = append(f.Reasons, fmt.Sprintf("reserve: the reserves add up to %.1f %%, more than reserve_limit, %.0f %%", 100*sum, 100*limit))
	}
}

// MostSimulated bounds the domains of a simulation.
const MostSimulated = 64

const (
	// mostRequests bounds a simulation: it takes well below a second.
	mostRequests  = 100_000
	defaultKernel = time.Millisecond
	leastKernel   = 20 * time.Microsecond
)

// Predict adds predictions to an answer: Simulate's figures of the domains there and of the new one.
func (a *Accelerator) Predict(f *control.Fit, d Domain, length time.Duration) error {
	with := *a
	with.Domains = append(a.Domains[:len(a.Domains):len(a.Domains)], d)
	if len(with.Domains) > MostSimulated {
		f.Warnings = append(f.Warnings, fmt.Sprintf("no prediction: at most %d domains are simulated", MostSimulated))
		return nil
	}
	figures, length, err := with.Simulate(length)
	if err != nil {
		return fmt.Errorf("predict: %w", err)
	}
	for i := range figures {
		s := &with.Domains[i].Settings
		p := &control.Prediction{Share: figures[i].Share, WaitP99: int64(figures[i].WaitP99)}
		if i < len(f.Others) {
			f.Others[i].Predicted = p
		} else {
			f.Domain.Predicted = p
		}
		if want := s.SLOWait; want > 0 && p.WaitP99 > int64(want) {
			f.Warnings = append(f.Warnings, fmt.Sprintf("domain %q: predicted wait p99 of %v, above its objective of %v", s.Name, time.Duration(p.WaitP99).Round(time.Microsecond), want))
		}
	}
	f.Simulated = int64(length)
	return nil
}

// Figures are the simulated results of a domain.
type Figures struct {
	Used    float64       // part of the time for which it held the accelerator, 0 to 1
	Share   float64       // part of the time for which any domain held it, 0 to 1
	WaitP99 time.Duration // 99th percentile of its requests' waits
}

// Simulate simulates the accelerator's policy with the demand of its domains, at most MostSimulated, for a length or,
// if that is less, for the time in which they make at most mostRequests requests; it returns the simulated time. Each
// domain is one thread that computes on the CPU, then waits for a request; the model has no memory and no CPU
// contention. A demand that is not above 0 counts as 1. The same input gives the same result.
func (a *Accelerator) Simulate(length time.Duration) (figures []Figures, simulated time.Duration, err error) {
	all := slices.Clone(a.Domains)
	if len(all) > MostSimulated {
		return nil, 0, fmt.Errorf("simulate accelerator %q: %d domains: at most %d are simulated", a.Settings.Name, len(all), MostSimulated)
	}
	if len(all) == 0 {
		return nil, 0, nil
	}
	var rate float64 // requests per second, at most
	for i := range all {
		o := &all[i]
		if o.Kernel <= 0 {
			o.Kernel = defaultKernel
		}
		o.Kernel = min(max(o.Kernel, leastKernel), 10*time.Second)
		if !(o.Demand > 0 && o.Demand <= 1) {
			o.Demand = 1
		}
		rate = max(rate, 1/o.Kernel.Seconds())
	}
	length = min(length, time.Duration(float64(mostRequests)/rate*float64(time.Second))).Truncate(time.Millisecond)
	sc, err := sim.Parse("fits", []byte(a.scenario(all, length)))
	if err != nil {
		return nil, 0, err
	}
	r, err := sim.Judge(sc, 1, 1, nil)
	if err != nil {
		return nil, 0, err
	}
	m := r.Metrics["now"]
	var busy float64 // per cent of the time; "part" is of a whole group
	for i := range all {
		busy += m[fmt.Sprintf("d%d", i)]["compute"]
	}
	for i := range all {
		one := m[fmt.Sprintf("d%d", i)]
		figures = append(figures, Figures{Used: one["compute"] / 100, Share: one["compute"] / max(busy, math.SmallestNonzeroFloat64),
			WaitP99: time.Duration(math.Round(one["wait_p99"] * 1e6))})
	}
	return figures, length, nil
}

// scenario returns the simulator's description of the accelerator with the domains.
func (a *Accelerator) scenario(all []Domain, length time.Duration) string {
	var b strings.Builder
	fmt.Fprintf(&b, "profile = \"modern\"\ntime = %q\nwindow = %q\nseeds = 1\n[profile_override]\nnoise = 0\ncpu_noise = 0\nepoch_sigma = 0\nstall_part = 0\nchange_sigma = 0\nchange = %q\n",
		length, max(length/5, time.Millisecond), a.Settings.Change)
	fmt.Fprint(&b, "[[accelerator]]\nname = \"a\"\n")
	fmt.Fprintf(&b, "[[plan]]\nname = \"now\"\npolicy = %q\nmode = %q\n", a.Settings.Policy, a.Settings.Mode)
	if options := a.options(); len(options) > 0 {
		fmt.Fprintf(&b, "options = {%s}\n", strings.Join(options, ", "))
	}
	for i := range all {
		s, gap := &all[i].Settings, time.Duration(float64(all[i].Kernel)*(1/all[i].Demand-1))
		fmt.Fprintf(&b, "[workload.w%d]\nkernel = %q\ncalls = 1000\n", i, all[i].Kernel)
		if gap > 0 {
			fmt.Fprintf(&b, "cpu = %q\n", min(gap, 10*time.Second))
		}
		fmt.Fprintf(&b, "[[domain]]\nname = \"d%d\"\naccelerator = \"a\"\nworkload = \"w%d\"\ncredits = %d\nslo = %d\nbandwidth = %d\npriority = %d\ncpu_credits = %d\nthroughput = %v\ninteractive = %v\n",
			i, i, all[i].Share, s.SLO, s.Bandwidth, s.Priority, all[i].Share, s.Throughput, s.Interactive)
		if s.Group != "" {
			fmt.Fprintf(&b, "group = %q\n", s.Group)
		}
		if s.Period > 0 {
			fmt.Fprintf(&b, "period = %q\n", s.Period)
		}
		if s.Deadline > 0 {
			fmt.Fprintf(&b, "deadline = %q\n", s.Deadline)
		}
		if kind := map[string]string{"pe": "PE", "ae": "AE", "background": "background"}[s.Reserve]; kind != "" {
			fmt.Fprintf(&b, "reserve = {kind = %q, shared = %q, cost = %q, period = %q}\n", kind, s.ReserveName, s.ReserveCost, s.ReservePeriod)
		}
	}
	return b.String()
}

// options returns the parameters that differ from the defaults.
func (a *Accelerator) options() (all []string) {
	base := configs.Default().Accelerators[0]
	for _, p := range policies.Params() {
		if v := a.Settings.Get(p.Key); v != base.Get(p.Key) {
			all = append(all, p.Key+" = "+v)
		}
	}
	if v := a.Settings.Get("tick"); v != base.Get("tick") {
		all = append(all, "tick = "+v)
	}
	return all
}

// Sort sorts domains by name.
func Sort(all []Domain) {
	slices.SortFunc(all, func(a, b Domain) int { return strings.Compare(a.Settings.Name, b.Settings.Name) })
}
