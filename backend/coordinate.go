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
	weighEvery  = time.Second            // period at which domains' CPU weights are read
	leastPeriod = 10 * time.Millisecond  // least period between samples of the schedule, otherwise sampled once a tick
	askEvery    = 250 * time.Millisecond // longest time until the policies' needs are checked again
	settleTime  = 20 * time.Millisecond  // guests that arrive within this time are weighed together
)

// coordinate passes CPU weights and samples of vCPU state to the policies that use them, until ctx ends. It has a
// goroutine of its own because its reads may be slow.
func (d *Daemon) coordinate(ctx context.Context) {
	if d.opt.CPUs == nil {
		return
	}
	defer d.blink()
	var weighed, spent time.Time
	for {
		f := d.follows()
		if f.weights && time.Since(weighed) >= weighEvery {
			weighed = time.Now()
			d.weigh()
		}
		if time.Since(spent) >= weighEvery {
			spent = time.Now()
			d.steal()
		}
		switch {
		case f.look:
			d.eyes.Lock()
			d.observe(f.period)
			d.eyes.Unlock()
		case !f.schedule:
			d.blink()
		}
		select {
		case <-time.After(f.period):
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

// weighSoon requests that coordinate read the domains' weights again, because their processes have changed.
func (d *Daemon) weighSoon() {
	select {
	case d.settled <- struct{}{}:
	default:
	}
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// following describes the CPU data that the policies in force use.
type following struct {
	weights, schedule bool
	look              bool          // sample the schedule now: a domain waits for an accelerator
	period            time.Duration // until the policies' needs are checked again
}

func (d *Daemon) follows() following {
	d.mu.Lock()
	defer d.mu.Unlock()
	f := following{period: askEvery}
	for _, a := range d.accelerators {
		s := a.current()
		follows := choice(s).Follows()
		f.weights = f.weights || follows != policies.Neither
		f.schedule = f.schedule || follows == policies.Schedules
		if follows == policies.Schedules && a.contended() {
			f.look = true
			f.period = min(f.period, max(s.Tick, leastPeriod))
		}
	}
	return f
}

// contended reports whether several domains had work for the accelerator when it was last sampled; otherwise its policy
// has nothing to decide.
func (a *accelerator) contended() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.rivals()
}

// rivals is contended for callers that hold a.mu.
func (a *accelerator) rivals() bool {
	busy := 0
	for _, m := range a.members {
		if m.busy {
			busy++
		}
	}
	return busy > 1
}

// weigh reads the domains' CPU credits.
func (d *Daemon) weigh() {
	guests := d.guestsByDomain()
	d.eyes.Lock()
	weights := d.opt.CPUs.Weights(guests)
	d.eyes.Unlock()
	for i, w := range weights {
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

// guestsByDomain returns the processes of all domains that have some, by name. The processes of a virtual machine are
// its emulator's, if it has one; processes inside it are not this host's.
func (d *Daemon) guestsByDomain() []hypervisor.Guests {
	d.mu.Lock()
	defer d.mu.Unlock()
	found := make(map[string]hypervisor.Guests)
	for _, g := range d.guests { // there are fewer guests than possible domains
		name := g.dom.name
		if g.dom.on == nil {
			continue
		}
		if of, ok := d.machineGuests(name); ok {
			found[name] = of
		} else if g.pid != 0 {
			of := found[name]
			of.Domain, of.Processes = name, append(of.Processes, g.pid)
			found[name] = of
		}
	}
	var all []hypervisor.Guests
	for _, name := range slices.Sorted(maps.Keys(found)) {
		slices.Sort(found[name].Processes)
		all = append(all, found[name])
	}
	return all
}

// machineGuests returns the observable processes of a domain's machine, if it has one that is not off. d.mu is held.
func (d *Daemon) machineGuests(domain string) (hypervisor.Guests, bool) {
	m := d.machines[domain]
	return m.Guests()
}

// steal samples the steal time of virtual machines' vCPUs.
func (d *Daemon) steal() {
	var all []hypervisor.Guests
	d.mu.Lock()
	for name, dom := range d.domains {
		if of, ok := d.machineGuests(name); ok {
			all = append(all, of)
		} else {
			dom.vcpus, dom.stolen = hypervisor.Spent{}, meter{}
		}
	}
	d.mu.Unlock()
	if len(all) == 0 {
		return
	}
	d.eyes.Lock()
	spent, now := d.opt.CPUs.Spent(all), gate.Now()
	d.eyes.Unlock()
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, g := range all {
		if dom := d.domains[g.Domain]; dom != nil {
			if spent[i].Ran < dom.vcpus.Ran { // the counter started again
				dom.stolen = meter{}
			}
			dom.vcpus = spent[i]
			dom.stolen.sample(now, int64(spent[i].Waited))
		}
	}
}

// stealing returns the recent part of its vCPUs' time in which they waited for a CPU of the host. The daemon's mu is
// held.
func (dom *domain) stealing() float64 {
	waited, ns := dom.stolen.grown()
	if ns <= 0 || dom.vcpus.VCPUs == 0 {
		return 0
	}
	return min(max(float64(waited)/float64(ns)/float64(dom.vcpus.VCPUs), 0), 1)
}

// blink releases the sampler's resources.
func (d *Daemon) blink() {
	d.eyes.Lock()
	defer d.eyes.Unlock()
	d.opt.CPUs.Close()
}

// see is observe before a decision that is due. It does nothing and returns false if another goroutine is sampling, or
// reads slower data.
func (d *Daemon) see(period time.Duration) bool {
	if !d.eyes.TryLock() {
		return false
	}
	defer d.eyes.Unlock()
	d.observe(period)
	return true
}

// observe samples vCPU state and passes it to the policies that use it. d.eyes is held.
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

// observe passes a sample to the policy, with the blocked vCPUs of domains that have work marked as blocked on the
// accelerator.
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
