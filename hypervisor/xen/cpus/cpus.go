// Package cpus is the CPU side of Xen's domains, for a daemon in Dom0: each domain's part of the host's CPUs, and
// when their vCPUs run. Hypercalls return each vCPU's current state and total running time. Xen doesn't report the
// credit left, so it is computed, for all domains of a pool, since they share its CPUs.
//
// Callers: the backend, by the hypervisor contract.
//
// Trust boundary: the hypervisor is trusted.
package cpus

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"syscall"
	"time"

	"pegasus/hypervisor"
	"pegasus/hypervisor/xen/control"
	"pegasus/vcpu"
)

// Xen are the hypercalls used, as control.Xen implements them.
type Xen interface {
	Domains() ([]control.Domain, error)
	Pools() ([]control.Pool, error)
	Slice(p control.Pool) (slice, least time.Duration, err error)
	SetSlice(p control.Pool, slice time.Duration) error
	VCPU(domain uint16, number uint32) (control.VCPU, error)
	Params(s control.Scheduler, domain uint16) (control.Params, error)
	SetWeight(s control.Scheduler, domain, weight uint16) error
	SetCap(s control.Scheduler, domain, percent uint16, vcpus int) error
}

// CPUs is the CPU side of domains under Xen, addressed by domain number: Guests without one aren't Xen's. Safe for
// concurrent use.
type CPUs struct {
	log   *slog.Logger
	clock func() time.Time
	mine  func() int // the vCPU of Dom0's that runs this; -1: unknown

	mu         sync.Mutex
	x          Xen
	raiser     *Raiser // nil: no temporary weights
	pools      map[uint32]*pool
	domains    map[uint16]*domain
	vcpus      int       // vCPUs of all domains
	seen       time.Time // when domains was read
	lastLogged string    // the last logged error
	traced     *traced   // nil: the hypervisor's trace isn't used

	looks  int
	looked vcpu.Time
}

const (
	// maxVCPUs bounds the vCPUs sampled in all.
	maxVCPUs = 1024
	// readEvery is the number of looks at a domain between reads of its weight and cap.
	readEvery = 16
	// longPause is the number of periods between two looks after which the time between them isn't accounted for.
	longPause = 8
)

// NewCPUs returns the CPU side of a host's domains. It owns x from then on.
func NewCPUs(x Xen, log *slog.Logger) *CPUs {
	return &CPUs{x: x, log: log, clock: time.Now, mine: thisCPU, domains: make(map[uint16]*domain)}
}

// Weights implements hypervisor.CPUs.
func (c *CPUs) Weights(of []hypervisor.Guests) []hypervisor.Weight {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]hypervisor.Weight, len(of))
	c.read(false)
	for i, g := range of {
		d := c.domains[g.Xen]
		if d == nil || g.Xen == 0 {
			continue
		}
		if err := c.weigh(d); gone(err) {
			continue
		} else if err != nil {
			c.complain(err)
			continue
		}
		all[i] = d.weight()
	}
	return all
}

// Look implements hypervisor.CPUs. The calling vCPU displaces another one by the call: of the vCPUs that wait for its
// CPU, the one with most credit counts as running.
func (c *CPUs) Look(now vcpu.Time, period time.Duration, of []hypervisor.Guests) ([]vcpu.Schedule, vcpu.Quality) {
	c.mu.Lock()
	defer c.mu.Unlock()
	all, quality := make([]vcpu.Schedule, len(of)), vcpu.Unknown
	passed := now.Sub(c.looked)
	known := c.looks > 0 && passed > 0 && passed <= longPause*period
	if !c.read(true) {
		c.looks = 0
		return all, quality
	}
	c.looks++
	c.looked = now
	c.follow()
	for _, p := range c.pools {
		p.settle(min(passed, longPause*period), known)
		p.foretell(period)
		p.predict(c.traced, period)
	}
	c.giveWay()
	for i, g := range of {
		d := c.domains[g.Xen]
		if d == nil || g.Xen == 0 {
			continue
		}
		quality = vcpu.Shadow
		all[i] = d.schedule()
	}
	return all, quality
}

// giveWay marks the vCPU displaced by the caller as running.
func (c *CPUs) giveWay() {
	d := c.domains[0]
	if d == nil {
		return
	}
	mine := c.mine()
	for _, me := range d.vcpus {
		if me.number == mine && me.state == vcpu.Running {
			if next := d.pool.next(me.cpu); next != nil {
				next.state = vcpu.Running
			}
		}
	}
}

// Spent implements hypervisor.CPUs. Xen reports waiting times only to the domains themselves: they are estimated from
// how often a vCPU that didn't run was seen waiting.
func (c *CPUs) Spent(of []hypervisor.Guests) []hypervisor.Spent {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]hypervisor.Spent, len(of))
	c.read(true)
	for i, g := range of {
		d := c.domains[g.Xen]
		if d == nil || g.Xen == 0 {
			continue
		}
		for _, u := range d.vcpus {
			all[i].VCPUs++
			all[i].Ran += u.ran
			all[i].Waited += u.waited
		}
		for _, u := range d.off {
			all[i].Ran += u.ran
			all[i].Waited += u.waited
		}
	}
	return all
}

// Close implements hypervisor.CPUs. The waiting times of vCPUs are kept.
func (c *CPUs) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.looks = 0
	c.closeTrace()
}

// complain logs an error once, until it changes.
func (c *CPUs) complain(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != c.lastLogged && text != "" {
		c.log.Warn("cannot sample Xen's CPUs; policies use the last known data", "err", err)
	}
	c.lastLogged = text
}

// read updates the domains, and with vcpus their vCPUs' states.
func (c *CPUs) read(vcpus bool) bool {
	err := c.tryRead(vcpus)
	c.complain(err)
	return err == nil
}

func (c *CPUs) tryRead(vcpus bool) error {
	all, err := c.x.Domains()
	if err != nil {
		return err
	}
	if err := c.readPools(all); err != nil {
		return err
	}
	now := c.clock()
	passed := now.Sub(c.seen)
	if c.seen.IsZero() {
		passed = 0
	}
	here := make(map[uint16]bool, len(all))
	for _, info := range all {
		p := c.pools[info.Pool]
		if p == nil { // it has just changed pools: the next look has it
			continue
		}
		d := c.domains[info.ID]
		if d == nil || d.pool != p {
			d = &domain{id: info.ID, pool: p}
			if err := c.weigh(d); gone(err) {
				continue
			} else if err != nil {
				return err
			}
			c.forget(info.ID)
			c.domains[info.ID] = d
			p.domains = append(p.domains, d)
		}
		here[info.ID] = true
		d.info = info
		if vcpus {
			if err := c.readVCPUs(d, passed); err != nil {
				return err
			}
		}
	}
	for id := range c.domains {
		if !here[id] {
			c.forget(id)
		}
	}
	if vcpus {
		c.seen = now
	}
	return nil
}

// readPools updates the pools, if some domain's is unknown.
func (c *CPUs) readPools(all []control.Domain) error {
	missing := len(c.pools) == 0
	for _, d := range all {
		missing = missing || c.pools[d.Pool] == nil
	}
	if c.looks%readEvery != 0 && !missing {
		return nil
	}
	pools, err := c.x.Pools()
	if err != nil {
		return err
	}
	next := make(map[uint32]*pool, len(pools))
	for _, info := range pools {
		p := c.pools[info.ID]
		if p == nil || p.info.Scheduler != info.Scheduler {
			p = &pool{}
		}
		p.info = info
		if info.Scheduler.Known() { // other schedulers' parameters are not supported
			if p.slice, _, err = c.x.Slice(info); err != nil {
				return err
			}
		}
		p.cpus = hypervisor.CPUSet{}
		for _, cpu := range info.CPUs {
			p.cpus.Add(cpu)
		}
		next[info.ID] = p
	}
	c.pools = next
	return nil
}

// weigh reads a domain's weight and cap. Under an unsupported scheduler it has none.
func (c *CPUs) weigh(d *domain) error {
	if !d.pool.info.Scheduler.Known() {
		d.has, d.set, d.read = control.Params{}, control.Params{}, 0
		return nil
	}
	p, err := c.x.Params(d.pool.info.Scheduler, d.id)
	if err != nil {
		return err
	}
	d.has, d.read = p, 0
	d.set = p
	d.set.Weight = c.raiser.plain(d.id, p.Weight)
	return nil
}

// readVCPUs updates the states of a domain's vCPUs, passed after the last time.
func (c *CPUs) readVCPUs(d *domain, passed time.Duration) error {
	if d.read++; d.read >= readEvery {
		if err := c.weigh(d); gone(err) {
			return nil
		} else if err != nil {
			return err
		}
	}
	var online []*unit
	others := false // the set of online vCPUs has changed
	for n := 0; n <= d.info.MaxVCPU; n++ {
		v, err := c.x.VCPU(d.id, uint32(n))
		if err != nil && !gone(err) {
			return fmt.Errorf("vCPU %d of domain %d: %w", n, d.id, err)
		}
		if err != nil || !v.Online || c.vcpus-len(d.vcpus)+len(online) >= maxVCPUs {
			continue
		}
		u := find(d.vcpus, n)
		if u == nil {
			others, u = true, find(d.off, n)
		}
		if u == nil {
			u = &unit{number: n, domain: d, ran: v.CPUTime, credit: credit2Init}
			u.before = runTimes{ran: v.CPUTime}
		}
		u.see(v, d.info, passed)
		online = append(online, u)
	}
	if others || len(online) < len(d.vcpus) {
		d.off = slices.DeleteFunc(append(d.off, d.vcpus...), func(u *unit) bool { return find(online, u.number) != nil })
		for _, u := range d.off {
			u.rested = vcpu.Blocked
		}
	}
	c.vcpus += len(online) - len(d.vcpus)
	d.vcpus = online
	return nil
}

// gone reports whether a domain or vCPU has ended, was never created, or has moved to another pool.
func gone(err error) bool {
	return errors.Is(err, syscall.ESRCH) || errors.Is(err, syscall.EINVAL)
}

// forget removes a domain.
func (c *CPUs) forget(id uint16) {
	d := c.domains[id]
	if d == nil {
		return
	}
	delete(c.domains, id)
	c.vcpus -= len(d.vcpus)
	d.pool.remove(d)
	c.traced.forget(d)
}
