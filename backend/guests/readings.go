package guests

import (
	"strings"
	"time"

	"pegasus/backend/control"
	"pegasus/backend/gate"
	"pegasus/backend/history"
	"pegasus/backend/objectives"
	"pegasus/backend/sched"
	"pegasus/configs"
)

// reading has a domain's totals at its latest reading.
type reading struct {
	at      int64 // 0: there was none
	engaged int64
	totals
}

// Observe judges the domains' objectives and returns the activity of each domain since the previous call. Each
// accelerator's lock is held once, while its domains' credits are copied.
func (reg *Registry) Observe(at time.Time) []history.Reading {
	reg.mu.Lock()
	defer reg.mu.Unlock()
	entitled := make(map[*accelerator]map[string]float64, len(reg.accelerators))
	for _, a := range reg.accelerators {
		entitled[a] = a.Entitlements()
	}
	now := gate.Now()
	all := make([]history.Reading, 0, len(reg.domains))
	used := make(map[string]time.Duration, len(reg.accelerators))
	for _, dom := range reg.domains {
		r := dom.read(now)
		if dom.on != nil {
			r.Accelerator, r.Entitled = dom.on.Name, entitled[dom.on][dom.name]
			used[r.Accelerator] += r.Used
		}
		all = append(all, r)
	}
	for i := range all {
		if sum := used[all[i].Accelerator]; sum > 0 && all[i].Accelerator != "" {
			all[i].All, all[i].Share = sum, float64(all[i].Used)/float64(sum)
		}
		reg.domains[all[i].Domain].judge(at, &all[i])
	}
	return all
}

// judge passes a reading to the domain's objectives and notes changed judgements. Registry.mu is held.
func (dom *domain) judge(now time.Time, r *history.Reading) {
	targets := targetsOf(&dom.settings)
	if !targets.Any() {
		dom.tracker = nil
		return
	}
	if dom.tracker == nil {
		dom.tracker = &objectives.Tracker{}
	}
	for _, c := range dom.tracker.Step(now, targets, r) {
		if c.To != control.ObjectiveViolated && c.From != control.ObjectiveViolated {
			continue
		}
		text := objectives.Text(&c.ObjectiveState)
		if c.To == control.ObjectiveViolated && dom.on != nil {
			all := dom.reg.survey()
			d := dom.showIn(all)
			text += ": " + strings.Join(objectives.Causes(c.ObjectiveState, &d, dom.surroundings(all[dom.on].promised)), "; ")
		}
		dom.note("objective", "%s", text)
	}
}

func targetsOf(s *configs.Domain) objectives.Targets {
	return objectives.Targets{Share: float64(s.SLO) / 1000, WaitP99: s.SLOWait, Rate: float64(s.SLORate), Window: s.SLOWindow}
}

// surroundings describes the accelerator of a domain that is on one, where the objectives add up to promised.
// Registry.mu is held.
func (dom *domain) surroundings(promised float64) objectives.Surroundings {
	settings := dom.on.Settings()
	return objectives.Surroundings{Policy: settings.Policy, Promised: promised, Raises: sched.Choice(settings).Raises()}
}

// showObjective returns the objectives of a domain on an accelerator, with the causes of violated ones. Registry.mu is held.
func (dom *domain) showObjective(d *control.Domain, promised float64) control.Objective {
	o := dom.tracker.Show()
	if o.State != control.ObjectiveViolated {
		return o
	}
	s := dom.surroundings(promised)
	for i := range o.Objectives {
		if v := &o.Objectives[i]; v.State == control.ObjectiveViolated {
			v.Causes = objectives.Causes(*v, d, s)
		}
	}
	return o
}

// read returns a domain's activity since the previous call. Registry.mu is held.
func (dom *domain) read(now int64) history.Reading {
	r := history.Reading{Domain: dom.name}
	t, memory := dom.totals()
	r.Memory = memory
	if last := &dom.latest; last.at != 0 {
		r.Elapsed = time.Duration(now - last.at)
		r.Used = time.Duration(max(t.Used.Sum()-last.Used.Sum(), 0))
		r.Stood = time.Duration(max(t.Stood-last.Stood, 0))
		r.Engaged = time.Duration(dom.engaged.total - last.engaged)
		r.Calls = t.Calls - min(t.Calls, last.Calls)
		r.Waits = t.Waits.Since(&last.Waits)
	}
	dom.latest = reading{now, dom.engaged.total, t}
	return r
}
