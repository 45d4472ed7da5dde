package backend

import (
	"context"
	"maps"
	"slices"
	"time"

	"pegasus/backend/gate"
	"pegasus/hypervisor"
	"pegasus/policies"
	"pegasus/vcpu"
)

const (
	weighEvery  = time.Second            // domains' weights are read so often
	leastPeriod = 10 * time.Millisecond  // the schedule is, once a tick, but no oftener
	askEvery    = 250 * time.Millisecond // and so often it is seen whether anybody wants to know
	settleTime  = 20 * time.Millisecond  // guests that come together are weighed together
)

// coordinate tells policies of the CPU side of their domains, as far as they follow
// it, until ctx ends. It has a goroutine of its own, since what it reads may be slow.
func (d *Daemon) coordinate(ctx context.Context) {
	if d.opt.CPUs == nil {
		return
	}
	var weighed time.Time
	for {
		weights, schedule, period := d.follows()
		if weights && time.Since(weighed) >= weighEvery {
			weighed = time.Now()
			d.weigh()
		}
		if schedule {
			d.observe(period)
		}
		select {
		case <-time.After(period):
		case <-d.settled:
			weighed = time.Time{}
			sleep(ctx, settleTime)
		case <-ctx.Done():
			return
		}
		if ctx.Err() != nil {
			return
		}
	}
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// follows is what the policies in force want to know of the CPU side now, and when
// to ask again. The schedule is wanted where somebody has to wait for an accelerator.
func (d *Daemon) follows() (weights, schedule bool, period time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	period = askEvery
	for _, a := range d.accelerators {
		s := a.current()
		follows := choice(s).Follows()
		weights = weights || follows != policies.Neither
		if follows == policies.Schedules && a.contended() {
			schedule = true
			period = min(period, max(s.Tick, leastPeriod))
		}
	}
	return weights, schedule, period
}

// contended says whether several domains want the accelerator, or did when it was
// last looked at: else its policy has nothing to decide.
func (a *accelerator) contended() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	busy := 0
	for _, m := range a.members {
		if m.busy {
			busy++
		}
	}
	return busy > 1
}

// weigh fills in the domains' CPU credits.
func (d *Daemon) weigh() {
	guests := d.guestsByDomain()
	for i, w := range d.opt.CPUs.Weights(guests) {
		d.weighed(guests[i].Domain, w)
	}
}

func (d *Daemon) weighed(name string, w hypervisor.Weight) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if dom := d.domains[name]; dom != nil && dom.on != nil && w.Credits != 0 && dom.cpu != w {
		dom.cpu = w
		dom.on.setShares(dom.avcpu, dom.settings, w.Credits)
	}
}

// guestsByDomain are the processes of all domains that have some, by name.
func (d *Daemon) guestsByDomain() []hypervisor.Guests {
	d.mu.Lock()
	defer d.mu.Unlock()
	processes := make(map[string][]int)
	for _, g := range d.guests { // of which there are fewer than there may be domains
		if g.pid != 0 && g.dom.on != nil {
			processes[g.dom.name] = append(processes[g.dom.name], g.pid)
		}
	}
	var all []hypervisor.Guests
	for _, name := range slices.Sorted(maps.Keys(processes)) {
		slices.Sort(processes[name])
		all = append(all, hypervisor.Guests{Domain: name, Processes: processes[name]})
	}
	return all
}

// observe tells policies that look at it what the CPUs do.
func (d *Daemon) observe(period time.Duration) {
	guests := d.guestsByDomain()
	now := vcpu.Time(gate.Now())
	seen, quality := d.opt.CPUs.Look(now, period, guests)
	d.mu.Lock()
	defer d.mu.Unlock()
	samples := make(map[*accelerator]*vcpu.Sample)
	for i, g := range guests {
		dom := d.domains[g.Domain]
		if dom == nil || dom.on == nil {
			continue
		}
		s := samples[dom.on]
		if s == nil {
			s = &vcpu.Sample{At: now, Period: period, Quality: quality}
			samples[dom.on] = s
		}
		seen[i].ID = dom.avcpu.id
		s.Domains = append(s.Domains, seen[i])
	}
	for a, s := range samples {
		if choice(a.current()).Follows() == policies.Schedules {
			slices.SortFunc(s.Domains, func(x, y vcpu.Schedule) int { return int(int64(x.ID) - int64(y.ID)) })
			a.observe(s)
		}
	}
}

// observe tells the policy of a sample, in which domains that wait for the
// accelerator are told from those that rest.
func (a *accelerator) observe(s *vcpu.Sample) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range s.Domains {
		at, ok := a.find(s.Domains[i].ID)
		if !ok || !a.members[at].busy {
			continue
		}
		for n := range s.Domains[i].VCPUs {
			if v := &s.Domains[i].VCPUs[n]; v.State == vcpu.Blocked {
				v.State = vcpu.BlockedOnAccelerator
			}
		}
	}
	a.step(gate.Now(), policies.Event{Kind: policies.Observe, Sample: s})
}
