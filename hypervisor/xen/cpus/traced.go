package cpus

import (
	"slices"
	"time"

	"pegasus/hypervisor/xen/control"
	"pegasus/hypervisor/xen/dump"
	"pegasus/hypervisor/xen/schedule"
	"pegasus/hypervisor/xen/trace"
)

// TraceEvents are the classes of the hypervisor's events that are looked at here: who runs and who
// waits, and what its schedulers do with credits. Half of what it can note of its scheduling isn't in them.
const TraceEvents = 0x00023000

// traced is what is known by the hypervisor's trace: exactly what vCPUs did; under Credit2, what
// credit they have; under Credit, what that comes to. What Credit's were to begin with, and when
// it hands out more, is asked of what the hypervisor prints of it.
type traced struct {
	follower *trace.Follower
	history  *schedule.History
	tally    schedule.Tally
	until    int64 // all up to here is known; 0: nothing is

	printer *dump.Printer // nil: it isn't asked to print
	printed *printed      // what it did, and isn't taken yet
	asks    int
	asked   int64 // when it was last
	took    int64 // how long that took

	compare *printed // with which what is known is to be compared, too
	agreed  Agreement
}

// Agreement is how well what is known of vCPUs' credits agrees with what the hypervisor printed.
type Agreement struct {
	VCPUs int           // so many were compared
	Signs int           // and of so many of them it agreed whether they had credit left
	Off   time.Duration // the sum of differences
}

// printed is what was printed between two times.
type printed struct {
	*dump.Dump
	from, to int64
}

// Trace has the CPU side go by the hypervisor's trace as well.
func (c *CPUs) Trace(f *trace.Follower) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.traced = &traced{follower: f}
}

// Print lets the hypervisor be asked to print its schedule, beside the trace: when Credit hands out
// credits is known better then. It prints to its console, for whose readers that displaces what is older.
func (c *CPUs) Print(x dump.Xen) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.traced.printer = dump.NewPrinter(x)
}

// Compare has what is known of an instant be compared with what the hypervisor printed then, once
// the trace has come so far, and returns how well all agreed that were before.
func (c *CPUs) Compare(d *dump.Dump, at int64) Agreement {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.traced == nil {
		return Agreement{}
	}
	c.traced.compare = &printed{d, at, at}
	return c.traced.agreed
}

// agree compares, if it is time.
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

// Foretold is how often it was right, of so many times, who was foretold to run on a CPU; and how
// often that all goes on as it was.
func (c *CPUs) Foretold() (asked, right, asNow int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.traced == nil {
		return 0, 0, 0
	}
	t := &c.traced.tally
	return t.Asked, t.Hits, t.AsNow
}

// follow takes what the trace has that is new.
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
		c.log.Warn("Xen's trace can't be read, so that what credit vCPUs have is known less well", "err", err)
	}
	if !ok {
		if t.until != 0 { // what comes is of another trace
			c.unlearn()
		}
		return
	}
	t.until = until
	t.history.Keep(func(domain uint16) bool { return c.domains[domain] != nil }) // who has died has left records
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

// correct takes what was printed, once all is taken that was recorded meanwhile.
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

// follow has the pool's shadow be for what the pool is now.
func (p *pool) follow() {
	if p.info.Scheduler != control.Credit {
		p.shadow = nil
		return
	}
	if p.shadow == nil || p.shadowed != len(p.info.CPUs) || p.shadowSlice != p.period() {
		p.shadow = schedule.NewShadow(len(p.info.CPUs), int64(p.period()))
		p.shadowed, p.shadowSlice = len(p.info.CPUs), p.period()
	}
	for _, d := range p.domains {
		p.shadow.Share(d.id, schedule.Share{Weight: int(d.has.Weight), Cap: int(d.has.Cap)})
	}
}

// noted is what the trace tells of a vCPU without a gap, which had waited for so long before.
type noted struct {
	of     *schedule.VCPU
	gaps   int
	before time.Duration
}

// recorded takes down what the trace says of a vCPU.
func (u *unit) recorded(t *traced) {
	id := trace.VCPU{Domain: u.domain.id, Number: uint16(u.number)}
	u.exact = false
	v := t.history.VCPU(id)
	if v != nil {
		_, waited, _ := v.Did(t.history.Now())
		// What the trace doesn't tell goes by how the vCPU was seen.
		if u.noted == nil || u.noted.of != v || u.noted.gaps != v.Gaps || !v.Known {
			u.noted = &noted{v, v.Gaps, u.waited - time.Duration(waited)}
		}
		u.waited = u.noted.before + time.Duration(waited)
	}
	if shadow := u.domain.pool.shadow; shadow != nil {
		if credit, _, ok := shadow.Credit(id); ok && shadow.Told() {
			u.exact, u.has = true, time.Duration(credit)*creditTime
		}
	} else if v != nil && v.Told {
		u.exact, u.has = true, time.Duration(v.Credit)
	}
}

// What is asked of how the hypervisor prints.
const (
	// printPart is what part of the time may be spent with printing, while which all CPUs may have
	// to wait: 1 %.
	printPart = 100
	// Where it isn't sure whether credits were handed out it may be asked soon, the first times, and
	// then not as soon; else hardly ever, for what it prints displaces what else is on its console. (On a
	// processor that isn't emulated timers are so exact that it is sure for all but a moment in a minute.)
	askSoon, askThen, askLate = int64(100 * time.Millisecond), int64(200 * time.Millisecond), int64(time.Minute)
	soon                      = 10 // times
	// sure is how well it is known when credits are handed out, at best.
	sure = int64(time.Millisecond)
)

// ask has the hypervisor print what credits there are, if that isn't known well enough.
func (c *CPUs) ask() {
	t := c.traced
	if t.printer == nil || t.printed != nil {
		return
	}
	now := t.follower.Now()
	pause := askLate
	for _, p := range c.pools {
		if p.shadow != nil && len(p.domains) > 0 && (!p.shadow.Told() || p.shadow.Unsure(now) > sure) {
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
	c.log.Warn("Xen doesn't say what credits there are, so they are known less well", "err", err)
	t.printer = nil
}

// credit says whether some pool's scheduler is Credit, which is the one that tells no credits.
func (c *CPUs) credit() bool {
	for _, p := range c.pools {
		if p.shadow != nil {
			return true
		}
	}
	return false
}

// predict foretells by the trace what the pool's vCPUs do in the coming period.
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
	known := slices.DeleteFunc(slices.Clone(p.info.CPUs), func(cpu int) bool { // else it couldn't be said how it is now
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

// forget forgets a domain: another may get its number.
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

// closeTrace lets go of the trace; what was known is out of date when it is looked at again.
func (c *CPUs) closeTrace() {
	t := c.traced
	if t == nil || t.history == nil {
		return
	}
	if err := t.follower.Close(); err != nil {
		c.log.Warn("end of reading Xen's trace", "err", err)
	}
	if t.tally.Asked > 0 {
		c.log.Info("it was foretold who runs on the CPUs of domUs", "times", t.tally.Asked, "right", t.tally.Hits, "as_now", t.tally.AsNow)
	}
	c.unlearn()
}

// unlearn forgets what was known by the trace.
func (c *CPUs) unlearn() {
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
