package coordination

import (
	"cmp"
	"slices"
	"time"

	"pegasus/policies"
	"pegasus/vcpu"
)

// Verdict is the measured coordination of an accelerator and the CPUs. Parts are of 1.
type Verdict struct {
	Policy    string `json:"policy"`
	Decisions int    `json:"decisions"` // with several domains that had work

	// Now is measured at the moment of a decision.
	Now Part `json:"now"`
	// Window is measured over the time for which a decision held: the part of it during which a vCPU ran.
	Window Part `json:"window"`

	// Preferred are the domains with work that the policy boosts at each decision: according to the newest
	// sample a vCPU of theirs runs or will run soon, and (under augc only) they have credit left. Others are all
	// other domains with work. Taken is the number of Preferred that were chosen.
	Preferred Rivals `json:"preferred"`
	Others    Rivals `json:"others"`
	Taken     Rivals `json:"taken"`
	// Age is the mean age of that sample.
	Age time.Duration `json:"age_ns"`
	// Looks is the number of statements in samples on whether a domain runs, and Right the part of them that
	// was correct.
	Looks int     `json:"looks"`
	Right float64 `json:"right"`

	Domains []Share `json:"domains"`
}

// Part is the mean part of the time during which vCPUs ran.
type Part struct {
	Chosen float64 `json:"chosen"` // of the domain that was chosen
	Chance float64 `json:"chance"` // of any domain with work: the result of a blind choice
	Best   float64 `json:"best"`   // of the domain with work for which it is greatest
}

// Rivals is a set of the domains with work, each counted once a decision.
type Rivals struct {
	Times int     `json:"times"`
	Ran   float64 `json:"ran"` // the part of these during which a vCPU of the domain ran at that moment
}

// Share is the decisions for one domain.
type Share struct {
	Domain string        `json:"domain"`
	Chosen int           `json:"chosen"` // among rivals
	Ran    int           `json:"ran"`    // of these, while a vCPU of it ran
	CPU    time.Duration `json:"cpu_ns"`
}

// Judge evaluates a trace. It counts the decisions between rivals with windows that lie within the time for which the
// trace has the running vCPUs.
func Judge(all []Line) Verdict {
	j := judge{truth: truthOf(all), domains: make(map[policies.ID]*domain)}
	for i := range all {
		switch r := &all[i]; {
		case r.Choice != nil:
			j.verdict.Policy = r.Choice.Policy
		case r.Event != nil:
			j.takeEvent(r.At, r.Name, r.Event)
		case r.Ready:
			j.decided(r.At, r.Actions)
		}
	}
	return j.end()
}

type judge struct {
	truth   truth
	verdict Verdict
	domains map[policies.ID]*domain
	order   []*domain // in order of appearance
	sample  *vcpu.Sample
	pending []choice // their windows haven't ended
	aged    int      // decisions with a sample
}

// domain is the state of one domain.
type domain struct {
	id    policies.ID
	name  string
	work  [3]bool // by class
	lease [3]bool
	until [3]policies.Time
	share *Share
}

func (d *domain) busy() bool { return slices.Contains(d.work[:], true) }

// choice is a decision between rivals.
type choice struct {
	at     policies.Time
	class  policies.Class
	of     *domain
	rivals []rival
	age    time.Duration // of the sample, if there was one
}

// rival is a domain that had work at a decision.
type rival struct {
	name      string
	chosen    bool
	preferred bool
}

func (j *judge) takeEvent(now policies.Time, name string, e *policies.Event) {
	if e.Kind == policies.Observe {
		j.observe(e.Sample)
		return
	}
	d := j.domains[e.Domain.ID]
	switch {
	case e.Kind == policies.Attach && d == nil:
		d = &domain{id: e.Domain.ID, name: name, share: &Share{Domain: name}}
		j.domains[d.id] = d
		j.order = append(j.order, d)
	case d == nil || int(e.Class) >= len(d.work):
	case e.Kind == policies.Detach:
		delete(j.domains, d.id)
		j.order = slices.DeleteFunc(j.order, func(o *domain) bool { return o == d })
		j.ended(now, func(c *choice) bool { return c.of == d })
		j.verdict.add(d.share)
	case e.Kind == policies.Wake && e.Signal == policies.Arrived:
		d.work[e.Class] = true
	case e.Kind == policies.Wake && e.Signal == policies.Drained && e.Class != policies.AnyClass:
		d.work[e.Class] = false
	case e.Kind == policies.Wake && e.Signal != policies.ContextOpened:
		d.work = [3]bool{}
	}
}

// observe compares a sample to the truth.
func (j *judge) observe(s *vcpu.Sample) {
	if j.sample = s; s == nil || s.Quality == vcpu.Unknown || !j.truth.knows(s.At, s.At+1) {
		return
	}
	for i := range s.Domains {
		d := j.domains[s.Domains[i].ID]
		if d == nil {
			continue
		}
		runs := slices.ContainsFunc(s.Domains[i].VCPUs, func(v vcpu.VCPU) bool { return v.State == vcpu.Running })
		j.verdict.Looks++
		if runs == j.truth.at(d.name, s.At) {
			j.verdict.Right++
		}
	}
}

// decided records the decisions of one instant.
func (j *judge) decided(now policies.Time, actions []policies.Action) {
	for i := range actions {
		a := &actions[i]
		d, class := j.domains[a.Domain], a.Lease.Class
		if d == nil || int(class) >= len(d.work) {
			continue
		}
		j.ended(now, func(c *choice) bool { return c.class == class && (c.of == d || a.Open) })
		had, until := d.lease[class], d.until[class]
		if d.lease[class], d.until[class] = a.Open, a.Lease.Until; !a.Open {
			continue
		}
		if had && until == policies.Forever { // a holder without rivals has one from now on, and continues
			continue
		}
		j.chosen(now, d, class)
	}
}

func (j *judge) chosen(now policies.Time, d *domain, class policies.Class) {
	c := choice{at: now, class: class, of: d, age: -1}
	if j.sample != nil {
		c.age = now.Sub(j.sample.At)
	}
	for _, o := range j.order {
		if o == d || o.busy() {
			c.rivals = append(c.rivals, rival{o.name, o == d, j.prefers(o.id)})
		}
	}
	if len(c.rivals) > 1 {
		j.pending = append(j.pending, c)
	}
}

// prefers reports whether the policy boosts a domain, because by the newest sample a vCPU of it runs or will
// soon.
func (j *judge) prefers(id policies.ID) bool {
	if j.sample == nil || j.sample.Quality == vcpu.Unknown || (policies.Choice{Policy: j.verdict.Policy}).Follows() != policies.Schedules {
		return false
	}
	i := slices.IndexFunc(j.sample.Domains, func(s vcpu.Schedule) bool { return s.ID == id })
	if i < 0 {
		return false
	}
	return j.sample.Scheduled(i) && (j.verdict.Policy != "augc" || j.sample.Domains[i].Remaining > 0)
}

// ended evaluates the choices with windows that end now.
func (j *judge) ended(now policies.Time, which func(*choice) bool) {
	j.pending = slices.DeleteFunc(j.pending, func(c choice) bool {
		if !which(&c) {
			return false
		}
		if now > c.at && j.truth.knows(c.at, now) {
			j.take(&c, now)
		}
		return true
	})
}

func (j *judge) take(c *choice, end policies.Time) {
	v := &j.verdict
	v.Decisions++
	c.of.share.Chosen++
	at := func(name string) float64 {
		if j.truth.at(name, c.at) {
			return 1
		}
		return 0
	}
	v.Now.add(at, c)
	v.Window.add(func(name string) float64 { return float64(j.truth.ran(name, c.at, end)) / float64(end.Sub(c.at)) }, c)
	c.of.share.Ran += int(at(c.of.name))
	if c.age >= 0 {
		j.aged++
		v.Age += c.age
	}
	for _, r := range c.rivals {
		ran := at(r.name)
		switch {
		case !r.preferred:
			v.Others.add(ran)
		case r.chosen:
			v.Taken.add(ran)
			fallthrough
		default:
			v.Preferred.add(ran)
		}
	}
}

func (r *Rivals) add(ran float64) {
	r.Times++
	r.Ran += ran
}

// add adds the outcome of a choice.
func (p *Part) add(ran func(name string) float64, c *choice) {
	var sum, most float64
	for i := range c.rivals {
		r := ran(c.rivals[i].name)
		sum, most = sum+r, max(most, r)
	}
	p.Chosen += ran(c.of.name)
	p.Chance += sum / float64(len(c.rivals))
	p.Best += most
}

func (v *Verdict) add(s *Share) { v.Domains = append(v.Domains, *s) }

// end turns sums into parts.
func (j *judge) end() Verdict {
	v := &j.verdict
	for _, d := range j.order {
		v.add(d.share)
	}
	for i := range v.Domains {
		s := &v.Domains[i]
		s.CPU = j.truth.ran(s.Domain, j.truth.from, j.truth.to)
	}
	slices.SortStableFunc(v.Domains, func(a, b Share) int { return cmp.Compare(a.Domain, b.Domain) })
	for _, p := range []*Part{&v.Now, &v.Window} {
		n := float64(max(v.Decisions, 1))
		p.Chosen, p.Chance, p.Best = p.Chosen/n, p.Chance/n, p.Best/n
	}
	v.Age /= time.Duration(max(j.aged, 1))
	for _, r := range []*Rivals{&v.Preferred, &v.Others, &v.Taken} {
		r.Ran /= float64(max(r.Times, 1))
	}
	v.Right /= float64(max(v.Looks, 1))
	return *v
}
