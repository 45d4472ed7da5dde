package guests

import (
	"time"

	"pegasus/backend/control"
	"pegasus/backend/fits"
	"pegasus/backend/sched"
	"pegasus/policies"
	"pegasus/vcpu"
)

// wouldBe is the name of the domain that a fits request describes.
const wouldBe = "(new)"

// Fits answers whether a domain would fit, for each accelerator that it may be on. It changes nothing. At most one
// caller simulates at a time.
func (r Requests) Fits(q control.FitParams) ([]control.Fit, error) {
	switch {
	case q.Kernel < 0 || q.Kernel > int64(10*time.Second):
		return nil, control.Errorf(control.CodeInvalid, "would a domain fit: kernel_ns = %d: must be 0 to 10000000000", q.Kernel)
	case !(q.Demand >= 0 && q.Demand <= 1):
		return nil, control.Errorf(control.CodeInvalid, "would a domain fit: demand = %v: must be 0 to 1", q.Demand)
	case q.Seconds < 0 || q.Seconds > 60:
		return nil, control.Errorf(control.CodeInvalid, "would a domain fit: simulate_s = %d: must be 0 to 60", q.Seconds)
	}
	all, d, err := r.candidates(q)
	if err != nil {
		return nil, err
	}
	if q.Predict {
		if !r.reg.predicting.TryLock() {
			return nil, control.Errorf(control.CodeConflict, "would a domain fit: another prediction is running; try again")
		}
		defer r.reg.predicting.Unlock()
	}
	length := time.Duration(q.Seconds) * time.Second
	if length == 0 {
		length = 5 * time.Second
	}
	answers := []control.Fit{}
	for i := range all {
		d.Share = all[i].Choice.Share(vcpu.Domain{Credits: vcpu.Credits(d.Settings.Credits)})
		f := all[i].Answer(d)
		if q.Predict {
			if err := all[i].Predict(&f, d, length/time.Duration(len(all))); err != nil {
				return nil, err
			}
		}
		answers = append(answers, f)
	}
	return answers, nil
}

// candidates returns the accelerators on which the described domain may be, with their domains, and the domain.
func (r Requests) candidates(q control.FitParams) (all []fits.Accelerator, d fits.Domain, err error) {
	reg := r.reg
	reg.mu.Lock()
	defer reg.mu.Unlock()
	if d.Settings, err = reg.undeclaredWith("new", q.Settings); err != nil {
		return nil, d, control.Errorf(control.CodeInvalid, "would a domain fit: %v", err)
	}
	d.Settings.Name = wouldBe
	d.Kernel, d.Demand = time.Duration(q.Kernel), q.Demand
	figures := reg.survey()
	for _, a := range reg.accelerators {
		if only := d.Settings.Accelerator; only != "" && only != a.Name {
			continue
		}
		p, settings := a.Hardware.Profile(), a.Settings()
		c := fits.Accelerator{Settings: settings, Choice: sched.Choice(settings), Memory: p.Memory, Swap: p.Swap, Allocated: a.Hardware.MemoryReserved()}
		for _, dom := range reg.domains {
			if dom.on == a {
				c.Domains = append(c.Domains, dom.demand(c.Choice, figures[a].used))
			}
		}
		fits.Sort(c.Domains)
		all = append(all, c)
	}
	return all, d, nil
}

// demand returns the domain's measured demand: the mean time of its requests, and the part of the recent time in which
// it would have computed without other domains, which used all of it together with this one. Registry.mu is held.
func (dom *domain) demand(choice policies.Choice, all int64) fits.Domain {
	t := &dom.latest.totals
	d := fits.Domain{Settings: dom.settings, Share: choice.Share(vcpu.Domain{Credits: vcpu.Credits(dom.settings.Credits), CPU: dom.cpu.Credits})}
	if n := t.Waits.Total(); n > 0 {
		d.Kernel = time.Duration(t.Used.Sum() / int64(min(n, 1<<62)))
	}
	if s := dom.spent(0, all); s.Accelerator > 0 {
		d.Demand = s.Accelerator / (s.Accelerator + s.Idle)
	}
	return d
}
