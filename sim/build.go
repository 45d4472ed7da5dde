package sim

import (
	"fmt"
	"time"

	"pegasus/policies"
	"pegasus/vcpu"
)

// builder prepares a run of one plan of a scenario.
type builder struct {
	*Sim
	scenario *Scenario
	profile  *Profile
	seed     uint64
	programs map[task]*program
}

// task is the key of a program.
type task struct {
	workload string
	kernel   time.Duration
}

// New prepares a run of one plan of the scenario.
func New(sc *Scenario, plan *Plan, seed uint64) (*Sim, error) {
	end := Forever
	if sc.Time > 0 {
		end = Time(sc.Time)
	}
	p := sc.profileOf(plan)
	b := &builder{Sim: connect(newClock(end), sc, plan, p), scenario: sc, profile: p, seed: seed, programs: map[task]*program{}}
	if text, ok := plan.Options["ahead"].(string); ok {
		b.ahead, _ = time.ParseDuration(text)
	}
	for i := range sc.Accelerators {
		if err := b.addGPU(&sc.Accelerators[i]); err != nil {
			return nil, err
		}
	}
	for i := range sc.Domains {
		if d := &sc.Domains[i]; plan.has(d.Name) {
			if err := b.addDomains(d); err != nil {
				return nil, err
			}
		}
	}
	if plan.CPUFollows {
		b.follow.begin(b.domains)
	}
	if sc.Runs == 0 && !sc.finite() {
		b.missing = -1
	}
	if len(b.cpus.all) > 0 {
		b.at(0, accounting, 0, 0)
		b.at(0, sampled, 0, 0)
	}
	return b.Sim, nil
}

// connect returns the parts of a run, without accelerators and domains.
func connect(c *clock, sc *Scenario, plan *Plan, p *Profile) *Sim {
	cpus := newProcessors(c, sc.CPUs, sc.Scheduler, p.Slice)
	s := &Sim{
		clock: c, plan: plan, cpus: cpus,
		guests:  &guests{clock: c, cpus: cpus, spin: p.Spin, thinking: logNormal(p.CPUNoise)},
		follow:  &following{clock: c, cpus: cpus},
		backend: &backend{clock: c, early: p.Early, classes: plan.Copy != ""},
		devices: &accelerators{clock: c, profile: p},
		loops:   &loops{clock: c, plan: plan},
	}
	s.guests.backend = s.backend
	s.backend.guests, s.backend.devices = s.guests, s.devices
	s.devices.backend = s.backend
	s.loops.backend, s.loops.follow = s.backend, s.follow
	return s
}

func (b *builder) addGPU(a *Accelerator) error {
	for i := range max(a.Count, 1) {
		name := a.numbered(i)
		sched, err := b.plan.scheduler()
		if err != nil {
			return err
		}
		g := &gpu{index: len(b.devices.all), name: name, driver: newDriver(b.profile, newStream(b.seed, "epochs of "+name)), chance: newStream(b.seed, "accelerator "+name), memory: newMemory(b.profile, a.Memory, b.plan.Swap)}
		g.host = &host{loops: b.loops, index: int32(g.index), gpu: g, sched: sched, timer: Forever}
		n := 1
		if b.profile.Engines {
			n = int(numEngines)
		}
		g.engines = make([]engine, n)
		for c := range g.engines {
			e := &g.engines[c]
			*e = engine{gpu: g, class: vcpu.Engine(c), index: int32(len(b.devices.engines))}
			b.devices.engines = append(b.devices.engines, e)
		}
		b.devices.all = append(b.devices.all, g)
		b.loops.hosts = append(b.loops.hosts, g.host)
	}
	return nil
}

// addDomains adds a domain, or Count identical ones.
func (b *builder) addDomains(d *Domain) error {
	for i := range max(d.Count, 1) {
		if err := b.addDomain(d, i); err != nil {
			return err
		}
	}
	return nil
}

// addDomain adds the i-th of identical domains.
func (b *builder) addDomain(spec *Domain, i int) error {
	name := spec.numbered(i)
	h, err := b.place(spec)
	if err != nil {
		return err
	}
	chance := newStream(b.seed, "domain "+name)
	spec, err = b.plan.set(spec, name)
	if err == nil && (i == 0 || b.plan.Set[name] != nil) {
		err = spec.check(name, b.scenario)
	}
	if err != nil {
		return err
	}
	program, err := b.program(spec, newStream(b.seed, "program of "+name))
	if err != nil {
		return err
	}
	d := &domain{
		index: int32(len(b.domains)), name: name, spec: spec, host: h, seat: len(h.all), id: vcpu.ID(len(h.all) + 1),
		chance: chance, poller: poller{depth: max(spec.Depth, 1)}, reports: reports{reported: Forever},
	}
	d.cpu.credits = vcpu.Credits(spec.CPUCredits).OrDefault()
	d.cpu.weight = int64(d.cpu.credits)
	for c := range d.reports.used {
		d.reports.used[c] = policies.Event{Kind: policies.Charge, Domain: policies.Domain{ID: d.id}, Class: policies.Class(c)}
	}
	d.record.window = b.scenario.Window
	h.all = append(h.all, d)
	h.credits += int(vcpu.Credits(spec.Credits).OrDefault())
	b.domains = append(b.domains, d)
	if spec.Threads > mostAll-len(b.cpus.threads) {
		return fmt.Errorf("domain %q: threads = %d: at most %d in all", name, spec.Threads, mostAll)
	}
	if err := b.addThreads(d, program); err != nil {
		return err
	}
	if !spec.Background {
		b.missing += max(spec.Runs, b.scenario.Runs)
	}
	from := spec.From
	if spec.FromTo > from {
		from += newStream(b.seed, "start of "+name).below(spec.FromTo - from)
	}
	b.at(Time(from), appeared, d.index, 0)
	if spec.To > 0 {
		b.at(Time(spec.To), vanished, d.index, 0)
	}
	return nil
}

// addThreads adds the threads of a domain, which run a program.
func (b *builder) addThreads(d *domain, program *program) error {
	spec, name := d.spec, d.name
	for i := range max(spec.Threads, 1) {
		t := &thread{index: int32(len(b.cpus.threads)), domain: d, program: program, chance: newStream(b.seed, fmt.Sprintf("thread %d of %s", i, name))}
		if len(spec.CPUs) > 0 {
			cpu := spec.CPUs[i%len(spec.CPUs)]
			if cpu < 0 || cpu >= len(b.cpus.all) {
				return fmt.Errorf("domain %q: there is no CPU %d; the scenario has cpus = %d", name, cpu, len(b.cpus.all))
			}
			t.cpu = &b.cpus.all[cpu]
		}
		d.threads = append(d.threads, t)
		b.cpus.threads = append(b.cpus.threads, t)
	}
	return nil
}

// program returns the program of a domain. Domains with the same program share it.
func (b *builder) program(d *Domain, chance *stream) (*program, error) {
	w, err := b.scenario.workload(d, b.plan, b.profile, chance)
	if err != nil {
		return nil, err
	}
	like := task{d.Workload, w.Kernel}
	p := b.programs[like]
	if p == nil {
		if p, err = w.compile(d.Workload, b.profile); err == nil {
			b.programs[like] = p
		}
	}
	return p, err
}

// place returns the accelerator of a domain: the one it names, or the one with the fewest credits; under
// policy none, one after the other.
func (b *builder) place(d *Domain) (*host, error) {
	if len(b.loops.hosts) == 0 {
		return nil, fmt.Errorf("there is no [[accelerator]]")
	}
	if d.Accelerator != "" {
		for _, g := range b.devices.all {
			if g.name == d.Accelerator {
				return g.host, nil
			}
		}
		return nil, fmt.Errorf("domain %q: there is no accelerator %q", d.Name, d.Accelerator)
	}
	if b.plan.Policy == "none" {
		return b.loops.hosts[len(b.domains)%len(b.loops.hosts)], nil
	}
	best := b.loops.hosts[0]
	for _, h := range b.loops.hosts {
		if h.credits < best.credits {
			best = h
		}
	}
	return best, nil
}
