// Package cpus connects the accelerators with the host's CPUs: it passes CPU weights and samples of vCPU state to the
// policies that use them, measures the steal time of machines, and makes the CPU weights of machines follow the windows
// of the accelerators.
//
// Callers: backend, which implements Domains, and the scheduler loops of backend/sched, which call Sampler.Sample and
// Follower.Window.
//
// Trust boundary: the package trusts the CPU side of the host (hypervisor.CPUs, hypervisor.Raiser).
//
// Locks: Sampler.samplerMu before the locks of Domains. Sampler.mu and Follower.mu are leaves.
package cpus

import (
	"context"
	"slices"
	"sync"
	"time"

	"pegasus/backend/meter"
	"pegasus/backend/sched"
	"pegasus/configs"
	"pegasus/hypervisor"
	"pegasus/policies"
	"pegasus/vcpu"
)

const (
	weighEvery = time.Second            // period at which domains' CPU weights are read
	checkEvery = 250 * time.Millisecond // longest time until the policies' needs are checked again
	gatherTime = 20 * time.Millisecond  // guests that arrive within this time are weighed together
)

// Accelerator is an accelerator whose policy may use CPU data; sched.Accelerator implements it.
type Accelerator interface {
	Settings() configs.Accelerator
	Contended() bool
	Observe(*vcpu.Sample)
}

// Domains is the daemon's table of domains and accelerators. Its methods may be called from any goroutine.
type Domains interface {
	// Accelerators returns all accelerators.
	Accelerators() []Accelerator
	// Guests returns the processes of each domain that is on an accelerator and has some, by name.
	Guests() []hypervisor.Guests
	// Machines returns the processes of each domain that is a machine and not off.
	Machines() []hypervisor.Guests
	// Attached calls use with a function that returns a domain's accelerator, nil if the domain is on none, and its ID
	// there. No domain is attached or detached until use returns.
	Attached(use func(find func(domain string) (Accelerator, vcpu.ID)))
	// SetWeight sets the CPU weight of a domain; a weight without credits is unknown.
	SetWeight(domain string, w hypervisor.Weight)
}

// Sampler reads the CPU side of the host.
type Sampler struct {
	cpus    hypervisor.CPUs
	domains Domains
	now     sched.Clock
	changed chan struct{} // has an element when processes of domains have changed since their domains were last weighed

	samplerMu sync.Mutex // held during every call on cpus

	mu    sync.Mutex
	steal map[string]*steal // by domain: machines that are not off
}

// steal is the use of the CPUs by a machine's vCPUs.
type steal struct {
	spent  hypervisor.Spent
	waited meter.Meter
}

// NewSampler returns a sampler of the CPU side; cpus is nil where there is no data on it.
func NewSampler(cpus hypervisor.CPUs, domains Domains, now sched.Clock) *Sampler {
	return &Sampler{cpus: cpus, domains: domains, now: now, changed: make(chan struct{}, 1), steal: map[string]*steal{}}
}

// Run passes CPU weights and samples of vCPU state to the policies that use them, until ctx ends. Its reads may be
// slow.
func (s *Sampler) Run(ctx context.Context) {
	if s.cpus == nil {
		return
	}
	defer s.release()
	var weighed, spent time.Time
	for {
		n := s.needs()
		if n.weights && time.Since(weighed) >= weighEvery {
			weighed = time.Now()
			s.weigh()
		}
		if time.Since(spent) >= weighEvery {
			spent = time.Now()
			s.measureSteal()
		}
		switch {
		case n.sample:
			s.samplerMu.Lock()
			s.observe(n.period)
			s.samplerMu.Unlock()
		case !n.schedule:
			s.release()
		}
		select {
		case <-time.After(n.period):
		case <-s.changed:
			weighed = time.Time{}
			sleepContext(ctx, gatherTime)
		case <-ctx.Done():
			return
		}
		if ctx.Err() != nil {
			return
		}
	}
}

// WeighSoon requests that Run read the domains' weights again, because their processes have changed.
func (s *Sampler) WeighSoon() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

func sleepContext(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// needs describes the CPU data that the policies in force use.
type needs struct {
	weights, schedule bool
	sample            bool          // sample the schedule now: a domain waits for an accelerator
	period            time.Duration // until the policies' needs are checked again
}

func (s *Sampler) needs() needs {
	n := needs{period: checkEvery}
	for _, a := range s.domains.Accelerators() {
		c := a.Settings()
		follows := sched.Choice(c).Follows()
		n.weights = n.weights || follows != policies.Neither
		n.schedule = n.schedule || follows == policies.Schedules
		if follows == policies.Schedules && a.Contended() {
			n.sample = true
			n.period = min(n.period, max(c.Tick, sched.LeastPeriod))
		}
	}
	return n
}

// weigh reads the domains' CPU credits.
func (s *Sampler) weigh() {
	guests := s.domains.Guests()
	s.samplerMu.Lock()
	weights := s.cpus.Weights(guests)
	s.samplerMu.Unlock()
	for i, w := range weights {
		s.domains.SetWeight(guests[i].Domain, w)
	}
}

// measureSteal samples the steal time of machines' vCPUs.
func (s *Sampler) measureSteal() {
	all := s.domains.Machines()
	s.mu.Lock()
	for name := range s.steal {
		if !slices.ContainsFunc(all, func(g hypervisor.Guests) bool { return g.Domain == name }) {
			delete(s.steal, name)
		}
	}
	s.mu.Unlock()
	if len(all) == 0 {
		return
	}
	s.samplerMu.Lock()
	spent, now := s.cpus.Spent(all), s.now()
	s.samplerMu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, g := range all {
		m := s.steal[g.Domain]
		if m == nil || spent[i].Ran < m.spent.Ran { // a new machine, or its counter started again
			m = &steal{}
			s.steal[g.Domain] = m
		}
		m.spent = spent[i]
		m.waited.Sample(now, int64(spent[i].Waited))
	}
}

// Steal returns the run and wait time of the vCPUs of a domain's machine, and the recent part of their time in which
// they waited for a CPU of the host. Both are 0 for a domain without a machine.
func (s *Sampler) Steal(domain string) (hypervisor.Spent, float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.steal[domain]
	if m == nil {
		return hypervisor.Spent{}, 0
	}
	waited, ns := m.waited.Growth()
	if ns <= 0 || m.spent.VCPUs == 0 {
		return m.spent, 0
	}
	return m.spent, min(max(float64(waited)/float64(ns)/float64(m.spent.VCPUs), 0), 1)
}

// release releases the resources of the CPU side.
func (s *Sampler) release() {
	s.samplerMu.Lock()
	defer s.samplerMu.Unlock()
	s.cpus.Close()
}

// Sample samples vCPU state for the coming period before a decision that is due. It does nothing and returns false if
// another goroutine is sampling, or reads slower data.
func (s *Sampler) Sample(period time.Duration) bool {
	if !s.samplerMu.TryLock() {
		return false
	}
	defer s.samplerMu.Unlock()
	s.observe(period)
	return true
}

// observe samples vCPU state and passes it to the policies that use it. samplerMu is held.
func (s *Sampler) observe(period time.Duration) {
	guests := s.domains.Guests()
	now := vcpu.Time(s.now())
	schedules, quality := s.cpus.Look(now, period, guests)
	s.domains.Attached(func(find func(domain string) (Accelerator, vcpu.ID)) {
		samples := make(map[Accelerator]*vcpu.Sample)
		for i, g := range guests {
			a, id := find(g.Domain)
			if a == nil {
				continue
			}
			sample := samples[a]
			if sample == nil {
				sample = &vcpu.Sample{At: now, Period: period, Quality: quality}
				samples[a] = sample
			}
			schedules[i].ID = id
			sample.Domains = append(sample.Domains, schedules[i])
		}
		for a, sample := range samples {
			if sched.Choice(a.Settings()).Follows() == policies.Schedules {
				slices.SortFunc(sample.Domains, func(x, y vcpu.Schedule) int { return int(int64(x.ID) - int64(y.ID)) })
				a.Observe(sample)
			}
		}
	})
}
