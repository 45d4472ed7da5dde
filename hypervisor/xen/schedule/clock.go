package schedule

// clock is the time at which Credit hands out credits: a period after it did so last, by a timer
// of one CPU's. What is known is between when it was the last time.
//
// A timer is always a little late, by about as much as that CPU's ticks are. It is late by more
// where its CPU is kept from its timers; but then a tick is late, too: while one is due that was
// to come first nothing is handed out, and what was due meanwhile is handed out when it comes.
type clock struct {
	period      int64
	early, late int64 // no earlier than, and no later than that credits were handed out last
	begun       bool
	cpu         int   // the one that does it
	due         int64 // when its next tick is; 0: nobody knows
	usual       int64 // how late a tick is, usually
	from, held  int64 // when it was last kept from its timers
	round       int   // how often credits were handed out to anybody
}

// In ns: how late timers are taken to be at first; and by how much more than usual one has to be
// late for its CPU to have been kept from it.
const (
	usualLate = 30000
	muchLate  = 200000
	slack     = 10000   // by which that is not known better
	mostGap   = 1000    // periods of which nothing was told, after which all begins anew
	doubt     = 1000000 // how far it may be from where it was shown not to be
)

// handed is when credits were handed out last, as far as is known.
func (c *clock) handed() int64 { return c.early + (c.late-c.early)/2 }

// comes is the next time, if that is no later than another.
func (c *clock) comes(at int64) (next int64, ok bool) {
	if !c.begun || at-c.late > mostGap*c.period {
		c.begun, c.early, c.late, c.usual = true, at-c.period, at, usualLate
	}
	due := c.handed() + c.period
	if c.due != 0 && c.due < due {
		return 0, false
	}
	if next = due + c.usual; c.from < due && next < c.held {
		next = c.held
	}
	return next, next <= at
}

// hands: they are handed out.
func (c *clock) hands(at int64, any bool) {
	if any {
		c.round++
	}
	c.early += c.period + c.usual*3/4
	c.late += c.period + c.usual*5/4 + slack
	if at == c.held {
		c.late = at
		if c.early > c.from {
			c.early = at
		}
	}
}

// told: it is known that they are handed out at this instant, by this CPU.
func (c *clock) told(cpu int, at int64) {
	c.by(cpu)
	c.early, c.late = at, at
}

// by: it is this CPU that does it.
func (c *clock) by(cpu int) {
	if cpu != c.cpu {
		c.cpu, c.due = cpu, 0
	}
}

// tick: a CPU ticked, and looked at all its timers. It says whether something may be due.
func (c *clock) tick(cpu int, at int64) bool {
	if cpu != c.cpu {
		return false
	}
	if c.due != 0 && at > c.due {
		late := at - c.due
		if late > c.usual+muchLate {
			c.from, c.held = c.due, at
			if c.late > c.due { // it may have been due as well
				c.late = at
			}
		}
		const memory = 8
		c.usual += (min(late, c.usual+muchLate) - c.usual) / memory
	}
	c.due = 0
	return true
}

// ticked has the next tick be due.
func (c *clock) ticked(cpu int, at int64) {
	if cpu == c.cpu {
		c.due = at + c.period/ticks
	}
}

// rests: a CPU has nothing to run, or has something again; then ticks come at other times.
func (c *clock) rests(cpu int) {
	if cpu == c.cpu {
		c.due = 0
	}
}

// printed: at an instant credits had been handed out so many times more than was known.
func (c *clock) printed(at int64, more int) {
	switch more {
	case 0:
		c.early, c.late = max(c.early, at-c.period-c.usual), min(c.late, at)
	case 1:
		c.late = min(c.late, at-c.period)
	case -1:
		c.early = max(c.early, at)
	default:
		c.early, c.late = at-c.period, at
	}
	if c.early > c.late { // it was later than is usual, or we thought it was
		if more == 1 {
			c.early = c.late - doubt
		} else {
			c.late = c.early + doubt
		}
	}
}
