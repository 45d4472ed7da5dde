package sim

import (
	"cmp"
	"fmt"
	"time"

	"pegasus/policies"
	follow "pegasus/policies/boost"
	"pegasus/vcpu"
)

// Forever is later than anything that happens.
const Forever = vcpu.Forever

// Sim is one run: one scenario, one plan, one seed.
type Sim struct {
	profile *Profile
	plan    *Plan
	agenda  agenda
	now     Time
	cpus    []pcpu
	gpus    []*gpu
	engines []*engine
	hosts   []*host
	domains []*domain
	threads []*thread
	rung    []*host
	free    []*request

	programs map[task]*program

	thinking *spread // of the programs' CPU times
	missing  int     // runs until the end; negative: they don't determine it
	end      Time

	slicing time.Duration  // EEVDF's slices
	boosts  *follow.Boosts // nil: the CPUs don't follow the accelerators
	weighed Time           // when their next event is due

	ahead  time.Duration // LAG's greatest lead, if the plan sets it
	events uint64
	hash   uint64
	trace  *Trace
}

// The 64-bit FNV hash, over words.
const (
	fnvOffset = 14695981039346656037
	fnvPrime  = 1099511628211
)

// New prepares a run of one plan of the scenario.
func New(sc *Scenario, plan *Plan, seed uint64) (*Sim, error) {
	s := &Sim{profile: sc.profileOf(plan), plan: plan, hash: fnvOffset, end: Forever, programs: map[task]*program{}}
	if sc.Time > 0 {
		s.end = Time(sc.Time)
	}
	if text, ok := plan.Options["ahead"].(string); ok {
		s.ahead, _ = time.ParseDuration(text)
	}
	s.slicing = cmp.Or(s.profile.Slice, eevdfSlice)
	s.thinking = logNormal(s.profile.CPUNoise)
	s.cpus = make([]pcpu, sc.CPUs)
	for i := range s.cpus {
		s.cpus[i].id = i
		s.cpus[i].fair = sc.Scheduler == "eevdf"
	}
	for i := range sc.Accelerators {
		if err := s.addGPU(sc, &sc.Accelerators[i], seed); err != nil {
			return nil, err
		}
	}
	for i := range sc.Domains {
		if d := &sc.Domains[i]; plan.has(d.Name) {
			if err := s.addDomains(sc, d, seed); err != nil {
				return nil, err
			}
		}
	}
	s.beginFollowing()
	if sc.Runs == 0 && !sc.finite() {
		s.missing = -1
	}
	if len(s.cpus) > 0 {
		s.agenda.add(0, accounting, 0, 0)
		s.agenda.add(0, sampled, 0, 0)
	}
	return s, nil
}

func (s *Sim) addGPU(sc *Scenario, a *Accelerator, seed uint64) error {
	for i := range max(a.Count, 1) {
		name := a.numbered(i)
		sched, err := s.plan.scheduler(sc)
		if err != nil {
			return err
		}
		g := &gpu{index: len(s.gpus), name: name, driver: newDriver(s.profile, newStream(seed, "epochs of "+name)), chance: newStream(seed, "accelerator "+name), memory: newMemory(s.profile, a.Memory, s.plan.Swap)}
		g.host = &host{index: int32(g.index), gpu: g, sched: sched, timer: Forever}
		n := 1
		if s.profile.Engines {
			n = int(numEngines)
		}
		g.engines = make([]engine, n)
		for c := range g.engines {
			e := &g.engines[c]
			*e = engine{gpu: g, class: vcpu.Engine(c), index: int32(len(s.engines))}
			s.engines = append(s.engines, e)
		}
		s.gpus = append(s.gpus, g)
		s.hosts = append(s.hosts, g.host)
	}
	return nil
}

// addDomains adds a domain, or Count identical ones.
func (s *Sim) addDomains(sc *Scenario, d *Domain, seed uint64) error {
	for i := range max(d.Count, 1) {
		if err := s.addDomain(sc, d, i, seed); err != nil {
			return err
		}
	}
	return nil
}

// addDomain adds the i-th of identical domains.
func (s *Sim) addDomain(sc *Scenario, spec *Domain, i int, seed uint64) error {
	name := spec.numbered(i)
	h, err := s.place(spec)
	if err != nil {
		return err
	}
	chance := newStream(seed, "domain "+name)
	spec, err = s.plan.set(spec, name)
	if err == nil && (i == 0 || s.plan.Set[name] != nil) {
		err = spec.check(name, sc)
	}
	if err != nil {
		return err
	}
	program, err := s.program(sc, spec, newStream(seed, "program of "+name))
	if err != nil {
		return err
	}
	d := &domain{
		index: int32(len(s.domains)), name: name, spec: spec, host: h, seat: len(h.all), id: vcpu.ID(len(h.all) + 1),
		chance: chance, cpuCredits: vcpu.Credits(spec.CPUCredits).OrDefault(),
		depth: max(spec.Depth, 1), told: Forever,
	}
	d.weight = int64(d.cpuCredits)
	for c := range d.used {
		d.used[c] = policies.Event{Kind: policies.Charge, Domain: policies.Domain{ID: d.id}, Class: policies.Class(c)}
	}
	d.record.window = sc.Window
	h.all = append(h.all, d)
	h.credits += int(vcpu.Credits(spec.Credits).OrDefault())
	s.domains = append(s.domains, d)
	if spec.Threads > mostAll-len(s.threads) {
		return fmt.Errorf("domain %q: threads = %d: at most %d in all", name, spec.Threads, mostAll)
	}
	for i := range max(spec.Threads, 1) {
		t := &thread{index: int32(len(s.threads)), domain: d, program: program, chance: newStream(seed, fmt.Sprintf("thread %d of %s", i, name))}
		if len(spec.CPUs) > 0 {
			cpu := spec.CPUs[i%len(spec.CPUs)]
			if cpu < 0 || cpu >= len(s.cpus) {
				return fmt.Errorf("domain %q: there is no CPU %d; the scenario has cpus = %d", name, cpu, len(s.cpus))
			}
			t.cpu = &s.cpus[cpu]
		}
		d.threads = append(d.threads, t)
		s.threads = append(s.threads, t)
	}
	if !spec.Background {
		s.missing += max(spec.Runs, sc.Runs)
	}
	from := spec.From
	if spec.FromTo > from {
		from += newStream(seed, "start of "+name).below(spec.FromTo - from)
	}
	s.agenda.add(Time(from), appeared, d.index, 0)
	if spec.To > 0 {
		s.agenda.add(Time(spec.To), vanished, d.index, 0)
	}
	return nil
}

// program returns the program of a domain. Domains with the same program share it.
func (s *Sim) program(sc *Scenario, d *Domain, chance *stream) (*program, error) {
	w, err := sc.workload(d, s.plan, s.profile, chance)
	if err != nil {
		return nil, err
	}
	like := task{d.Workload, w.Kernel}
	p := s.programs[like]
	if p == nil {
		if p, err = w.compile(d.Workload, s.profile); err == nil {
			s.programs[like] = p
		}
	}
	return p, err
}

// task is the key of a program.
type task struct {
	workload string
	kernel   time.Duration
}

// place returns the accelerator of a domain: the one it names, or the one with the fewest credits; under
// policy none, one after the other.
func (s *Sim) place(d *Domain) (*host, error) {
	if len(s.hosts) == 0 {
		return nil, fmt.Errorf("there is no [[accelerator]]")
	}
	if d.Accelerator != "" {
		for _, g := range s.gpus {
			if g.name == d.Accelerator {
				return g.host, nil
			}
		}
		return nil, fmt.Errorf("domain %q: there is no accelerator %q", d.Name, d.Accelerator)
	}
	if s.plan.Policy == "none" {
		return s.hosts[len(s.domains)%len(s.hosts)], nil
	}
	best := s.hosts[0]
	for _, h := range s.hosts {
		if h.credits < best.credits {
			best = h
		}
	}
	return best, nil
}

// Run advances time to the scenario's end, for one part after the other, because the small state of a part
// stays in the processor's caches. It returns an error if engine time was not charged.
func (s *Sim) Run() error {
	var end Time
	for _, part := range s.parts() {
		s.agenda, s.now = part, 0
		for s.next() {
		}
		end = max(end, s.now)
	}
	s.now = end
	return s.check()
}

// parts returns the agendas of independent parts: one for each accelerator, if there are no CPUs and the end
// is at a certain time, otherwise one for everything.
func (s *Sim) parts() []agenda {
	if len(s.cpus) > 0 || s.missing >= 0 || s.now > 0 {
		return []agenda{s.agenda}
	}
	all := make([]agenda, len(s.hosts))
	for s.agenda.len() > 0 {
		e := s.agenda.take() // of a domain: its start or end
		all[s.domains[e.who].host.index].add(e.at, e.kind(), e.who, e.gen)
	}
	return all
}

// next processes the next event; false: there is none.
func (s *Sim) next() bool {
	if s.missing == 0 || s.agenda.len() == 0 {
		return false
	}
	e := *s.agenda.take()
	if e.at > s.end {
		s.now = s.end
		return false
	}
	s.now = e.at
	s.events++
	s.hash = (s.hash ^ uint64(e.at)) * fnvPrime
	s.hash = (s.hash ^ (uint64(e.kind())<<32 | uint64(uint32(e.who)))) * fnvPrime
	s.happen(&e)
	for i := 0; i < len(s.rung); i++ {
		s.turn(s.rung[i])
	}
	s.rung = s.rung[:0]
	return true
}

// happen processes an event.
func (s *Sim) happen(e *event) {
	switch e.kind() {
	case completed:
		s.complete(s.engines[e.who])
	case accounting:
		s.tickCPUs()
	case sampled:
		s.observe()
	case rotated:
		if p := &s.cpus[e.who]; p.gen == e.gen {
			s.rotate(p)
		}
	case burst:
		if t := s.threads[e.who]; t.gen == e.gen {
			s.burstEnds(t)
		}
	case served:
		s.decoded(s.domains[e.who])
	case replied:
		d := s.domains[e.who]
		s.answered(d, d.replies.pop())
	case awoken:
		if t := s.threads[e.who]; t.gen == e.gen && !t.domain.gone {
			s.proceed(t)
		}
	case granted:
		d, c := s.domains[e.who>>2], policies.Class(e.who&3)
		if d.coming[c].gen == e.gen && !d.gone {
			s.grant(d, d.coming[c].lease)
		}
	case weighed:
		if e.at == s.weighed {
			s.weigh()
		}
	case due:
		s.timeout(s.hosts[e.who])
	case appeared:
		s.appear(s.domains[e.who])
	case vanished:
		s.vanish(s.domains[e.who])
	}
}

// observe passes the hypervisor's schedule to every scheduler.
func (s *Sim) observe() {
	for _, h := range s.hosts {
		if h.history != nil || h.sched.Observes() {
			s.step(h, &policies.Event{Kind: policies.Observe, Sample: s.sample(h)})
		}
	}
	s.agenda.add(s.now.Add(cpuPeriod), sampled, 0, 0)
}

// appear attaches a domain, for the first time or again.
func (s *Sim) appear(d *domain) {
	h := d.host
	h.members = append(h.members, d)
	d.looked = s.now
	d.gone, d.returns, d.busy, d.told = false, false, false, Forever
	d.heads, d.worked, d.rested = [3]uint64{}, [3]bool{}, [3]Time{}
	if d.here = d.threads[0].program.calls(); d.here {
		s.step(h, &policies.Event{Kind: policies.Attach, Domain: d.spec.domain(d.id)})
	}
	if !h.gpu.memory.allocate(d) {
		d.failed = true
		if s.vanish(d); !d.spec.Background {
			s.missing -= d.spec.Runs
		}
		return
	}
	s.step(h, &policies.Event{Kind: policies.Wake, Domain: policies.Domain{ID: d.id}, Signal: policies.ContextOpened})
	s.ring(h)
	for _, t := range d.threads {
		t.began, t.released = s.now, s.now
		s.proceed(t)
	}
}

// vanish ends a domain. Its requests in flight run to their end and are charged to it.
func (s *Sim) vanish(d *domain) {
	if d.gone {
		return
	}
	h := d.host
	for i, o := range h.members {
		if o == d {
			h.members = append(h.members[:i], h.members[i+1:]...)
			break
		}
	}
	s.tellUse(h, d)
	s.step(h, &policies.Event{Kind: policies.Wake, Domain: policies.Domain{ID: d.id}, Signal: policies.ContextClosed})
	for i := range d.leases {
		d.leases[i].open = false
		d.coming[i].gen++
	}
	d.mark()
	d.gone = true
	h.gpu.memory.free(d)
	for _, t := range d.threads {
		s.block(t)
	}
	for d.ring.len() > 0 {
		d.ring.pop()
	}
	s.left(d)
	s.ring(h)
}

// left detaches a domain that is gone, once none of its requests is in flight.
func (s *Sim) left(d *domain) {
	h := d.host
	s.tellUse(h, d)
	if d.inFlight > 0 || !d.here {
		return
	}
	d.here = false
	s.step(h, &policies.Event{Kind: policies.Detach, Domain: policies.Domain{ID: d.id}})
	if d.returns {
		s.agenda.add(s.now.Add(d.spec.Away), appeared, d.index, 0)
	}
	s.ring(h)
}

// check returns an error unless the time for which engines were held equals the sum of the domains' charges,
// to the nanosecond.
func (s *Sim) check() error {
	for _, h := range s.hosts {
		var held time.Duration
		for i := range h.gpu.engines {
			held += h.gpu.engines[i].busy
		}
		for _, d := range h.all { // charges since the last turn
			held -= d.used[policies.Compute].Used.Busy() + d.used[policies.Copy].Used.Busy()
		}
		if stray := h.sched.Strays(); held != h.charged || stray.Busy() > 0 {
			return fmt.Errorf("accelerator %q: its engines were held for %v, domains were charged %v, and %v were charged to none", h.gpu.name, held, h.charged, stray.Busy())
		}
	}
	return nil
}

// Events returns the number of events, Hash a hash over them.
func (s *Sim) Events() uint64     { return s.events }
func (s *Sim) Hash() uint64       { return s.hash }
func (s *Sim) Now() time.Duration { return time.Duration(s.now) }
