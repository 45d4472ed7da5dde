package cpus

import (
	"slices"
	"time"

	"pegasus/hypervisor/xen/control"
	"pegasus/hypervisor/xen/dump"
	"pegasus/hypervisor/xen/schedule"
	"pegasus/hypervisor/xen/trace"
)

// TraceEvents are the classes of hypervisor events used here: running and waiting vCPUs, and the schedulers'
// accounting of credits. Half of Xen's scheduling events are in other classes.
const TraceEvents = 0x00023000

// traced is the state from the hypervisor's trace: the exact activity of vCPUs; under Credit2, their credit; under
// Credit, the credit computed from both. Credit's initial credits, and the times of its hand-outs, come from the
// hypervisor's printed dump.
type traced struct {
	follower *trace.Follower
	history  *schedule.History
	tally    schedule.Tally
	until    int64 // records up to here are complete; 0: none

	printer *dump.Printer // nil: no dumps are requested
	printed *printed      // the last dump, until it is applied
	asks    int
	asked   int64 // time of the last request
	took    int64 // its duration

	compare *printed // a dump to compare with, as well
	agreed  Agreement
}

// Agreement is the accuracy of the computed credits of vCPUs, compared with the hypervisor's dumps.
type Agreement struct {
	VCPUs int           // compared vCPUs
	Signs int           // those of which both agree whether they have credit left
	Off   time.Duration // sum of the differences
}

// printed is a dump printed between two times.
type printed struct {
	*dump.Dump
	from, to int64
}

// Trace makes c use the hypervisor's trace, too.
func (c *CPUs) Trace(f *trace.Follower) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.traced = &traced{follower: f}
}

// Print makes c request dumps of the hypervisor's schedule, beside the trace, for better times of Credit's hand-outs.
// The hypervisor prints to its console, where that displaces older output.
func (c *CPUs) Print(x dump.Xen) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.traced.printer = dump.NewPrinter(x)
}

// Compare compares the computed credits of the instant at with a dump of that time, once the trace has come so far,
// and returns the agreement of all earlier comparisons.
func (c *CPUs) Compare(d *dump.Dump, at int64) Agreement {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.traced == nil {
		return Agreement{}
	}
	c.traced.compare = &printed{d, at, at}
	return c.traced.agreed
}

// agree compares, if the trace has reached the dump's time.
func (c *CPUs) agree(at int64) {
	t := c.traced
	if t.compare == nil || t.compare.to > at {
		return
	}
	for _, v := range t.compare.VCPUs {
		d := c.domains[v.ID.Domain]
		if d == nil {
			continue
		}
		if u := find(d.vcpus, int(v.ID.Number)); u != nil {
			if u.recorded(t); u.exact {
				unit := creditTime
				if d.pool.shadow == nil {
					unit = 1
				}
				printed := time.Duration(v.Credit) * unit
				t.agreed.VCPUs++
				t.agreed.Off += max(printed-u.has, u.has-printed)
				if (printed > 0) == (u.has > 0) {
					t.agreed.Signs++
				}
			}
		}
	}
	t.compare = nil
}

// Foretold returns how many predictions of the vCPU on a CPU there were, how many were right, and how many would have
// been right if no vCPU had changed.
func (c *CPUs) Foretold() (asked, right, asNow int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.traced == nil {
		return 0, 0, 0
	}
	t := &c.traced.tally
	return t.Asked, t.Hits, t.AsNow
}

// follow takes the new records of the trace.
func (c *CPUs) follow() {
	t := c.traced
	if t == nil {
		return
	}
	if t.history == nil {
		t.history = schedule.NewHistory(t.tally.Ran)
	}
	for _, p := range c.pools {
		p.follow()
	}
	until, ok, err := t.follower.Look(func(at int64, r *trace.Record) {
		c.agree(at)
		c.correct(at)
		t.history.Take(at, r)
		if r.Event == trace.Lost {
			t.tally.Lose(r.CPU, at)
		}
		for _, p := range c.pools {
			if p.shadow != nil {
				p.shadow.Take(at, r)
			}
		}
	})
	if err != nil {
		c.log.Warn("cannot read Xen's trace; estimating the credit of vCPUs from their run times", "err", err)
	}
	if !ok {
		if t.until != 0 { // the records that follow are of another trace
			c.dropTraceState()
		}
		return
	}
	t.until = until
	t.history.Keep(func(domain uint16) bool { return c.domains[domain] != nil }) // ended domains have left records
	t.history.Flush()
	t.tally.Until(t.history.Now())
	c.agree(until)
	c.correct(until)
	for _, p := range c.pools {
		if p.shadow != nil {
			p.shadow.Until(until)
		}
	}
	for _, d := range c.domains {
		for _, u := range d.vcpus {
			u.recorded(t)
		}
	}
	c.ask()
}

// correct applies the last dump, once all records up to its end are taken.
func (c *CPUs) correct(at int64) {
	said := c.traced.printed
	if said == nil || said.to > at {
		return
	}
	c.traced.printed = nil
	for _, p := range c.pools {
		if p.shadow != nil {
			p.shadow.Printed(said.Dump, int(p.info.ID), said.from, said.to)
		}
	}
}

// follow adapts the pool's shadow to the pool's current scheduler, CPUs and period.
func (p *pool) follow() {
	if p.info.Scheduler != control.Credit {
		p.shadow = nil
		return
	}
	if p.shadow == nil || p.shadowed != len(p.info.CPUs) || p.shadowSlice != p.period() {
		p.shadow = schedule.NewCreditModel(len(p.info.CPUs), int64(p.period()))
		p.shadowed, p.shadowSlice = len(p.info.CPUs), p.period()
	}
	for _, d := range p.domains {
		p.shadow.Share(d.id, schedule.Share{Weight: int(d.has.Weight), Cap: int(d.has.Cap)})
	}
}

// noted is a vCPU's state in the trace without a gap, and the time that it had waited before.
type noted struct {
	of     *schedule.VCPU
	gaps   int
	before time.Duration
}

// recorded updates a vCPU from the trace.
func (u *unit) recorded(t *traced) {
	id := trace.VCPU{Domain: u.domain.id, Number: uint16(u.number)}
	u.exact = false
	v := t.history.VCPU(id)
	if v != nil {
		_, waited, _ := v.Did(t.history.Now())
		// The states seen by looks cover the gaps in the trace.
		if u.noted == nil || u.noted.of != v || u.noted.gaps != v.Gaps || !v.Known {
			u.noted = &noted{v, v.Gaps, u.waited - time.Duration(waited)}
		}
		u.waited = u.noted.before + time.Duration(waited)
	}
	if shadow := u.domain.pool.shadow; shadow != nil {
		if credit, _, ok := shadow.Credit(id); ok && shadow.Synced() {
			u.exact, u.has = true, time.Duration(credit)*creditTime
		}
	} else if v != nil && v.CreditKnown {
		u.exact, u.has = true, time.Duration(v.Credit)
	}
}

// Limits on dumps.
const (
	// printPart bounds the time spent printing, during which all CPUs may have to wait, to 1 %.
	printPart = 100
	// Where the time of a hand-out is uncertain a dump is requested soon, the first times, and then less soon; else
	// rarely, as it displaces other output on the console. (On real processors timers are so exact that the time is
	// certain for all but a moment in a minute.)
	askSoon, askThen, askLate = int64(100 * time.Millisecond), int64(200 * time.Millisecond), int64(time.Minute)
	soon                      = 10 // times
	// sure is the best precision of the times of hand-outs.
	sure = int64(time.Millisecond)
)

// ask requests a dump, if the credits are too uncertain.
func (c *CPUs) ask() {
	t := c.traced
	if t.printer == nil || t.printed != nil {
		return
	}
	now := t.follower.Now()
	pause := askLate
	for _, p := range c.pools {
		if p.shadow != nil && len(p.domains) > 0 && (!p.shadow.Synced() || p.shadow.Unsure(now) > sure) {
			if pause = askThen; t.asks < soon {
				pause = askSoon
			}
		}
	}
	if t.asked != 0 && now-t.asked < max(pause, printPart*t.took) {
		return
	}
	if !c.credit() {
		return
	}
	text, err := t.printer.Take()
	t.asks++
	t.asked = now
	to := t.follower.Now()
	t.took = to - now
	if err == nil {
		var d *dump.Dump
		if d, err = dump.Parse(text); err == nil {
			t.printed = &printed{d, now, to}
			return
		}
	}
	c.log.Warn("Xen does not print its credits; estimating them", "err", err)
	t.printer = nil
}

// credit reports whether some pool's scheduler is Credit, which has no credits in its trace.
func (c *CPUs) credit() bool {
	for _, p := range c.pools {
		if p.shadow != nil {
			return true
		}
	}
	return false
}

// predict predicts the activity of the pool's vCPUs in the coming period, by the trace.
func (p *pool) predict(t *traced, period time.Duration) {
	if t == nil || t.until == 0 {
		return
	}
	rules := schedule.Rules{
		Credit2: p.info.Scheduler == control.Credit2, Slice: int64(p.period()), Least: int64(time.Millisecond), Wakes: true,
		May: func(id trace.VCPU, cpu int) bool {
			return slices.Contains(p.info.CPUs, cpu) && p.domain(id.Domain) != nil
		},
	}
	if rules.Credit2 {
		rules.Slice = int64(credit2Init)
	} else if p.shadow != nil {
		rules.Priority = func(id trace.VCPU) int { _, priority, _ := p.shadow.Credit(id); return priority }
		rules.Hands = p.shadow.Hands()
		rules.Gets = func(id trace.VCPU) int64 { return p.shadow.Gets(id, t.history.Now()) }
	}
	said, asNow := t.history.Predict(rules, int64(period)), schedule.AsNow(t.history, int64(period))
	known := slices.DeleteFunc(slices.Clone(p.info.CPUs), func(cpu int) bool { // for the others the current vCPU is unknown
		all := t.history.CPUs()
		return cpu >= len(all) || !all[cpu].Known
	})
	t.tally.Foretold(t.history.Now()+int64(period)/2, known, said.Middle, asNow.Middle)
	if !t.tally.Better() {
		said = asNow
	}
	for _, d := range p.domains {
		for _, u := range d.vcpus {
			u.next = int(min(1000*said.Runs[trace.VCPU{Domain: d.id, Number: uint16(u.number)}]/int64(period), 1000))
		}
	}
}

func (p *pool) domain(id uint16) *domain {
	for _, d := range p.domains {
		if d.id == id {
			return d
		}
	}
	return nil
}

// forget removes a domain: Xen can reuse its number for another domain.
func (t *traced) forget(d *domain) {
	if t == nil {
		return
	}
	if t.history != nil {
		t.history.Forget(d.id)
	}
	if d.pool.shadow != nil {
		d.pool.shadow.Forget(d.id)
	}
}

// closeTrace closes the trace and drops the state, which is out of date when the trace is opened again.
func (c *CPUs) closeTrace() {
	t := c.traced
	if t == nil || t.history == nil {
		return
	}
	if err := t.follower.Close(); err != nil {
		c.log.Warn("end of reading Xen's trace", "err", err)
	}
	if t.tally.Asked > 0 {
		c.log.Info("forecasts of the vCPUs that run next", "times", t.tally.Asked, "right", t.tally.Hits, "as_now", t.tally.AsNow)
	}
	c.dropTraceState()
}

// dropTraceState drops the state from the trace.
func (c *CPUs) dropTraceState() {
	t := c.traced
	t.tally.Drop()
	c.traced = &traced{follower: t.follower, printer: t.printer, tally: t.tally, agreed: t.agreed}
	for _, p := range c.pools {
		p.shadow = nil
	}
	for _, d := range c.domains {
		for _, u := range d.vcpus {
			u.exact = false
		}
	}
}
