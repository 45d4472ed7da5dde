package schedule

// clock estimates the time at which Credit hands out credits: one period after the last hand-out, by a timer of one
// CPU. It keeps bounds on the time of the last hand-out.
//
// Timers fire slightly late, by about as much as that CPU's ticks do. They fire later where the CPU is kept from its
// timers; but then a tick is late, too: while a tick is overdue that was to come before the hand-out, nothing is
// handed out, and the overdue hand-out happens with the tick.
type clock struct {
	period      int64
	early, late int64 // bounds on the time of the last hand-out
	begun       bool
	cpu         int   // the CPU that the timer belongs to
	due         int64 // time of its next tick; 0: unknown
	usual       int64 // usual lateness of a tick
	from, held  int64 // the interval in which it was last kept from its timers
	round       int   // hand-outs that had recipients
}

// In ns: the assumed lateness of timers at first; and the lateness beyond the usual at which the CPU counts as kept
// from its timers.
const (
	usualLate = 30000
	muchLate  = 200000
	slack     = 10000   // uncertainty of that
	mostGap   = 1000    // periods without records after which the estimate starts anew
	doubt     = 1000000 // width of the bounds after they were shown to be wrong
)

// handed returns the estimated time of the last hand-out.
func (c *clock) handed() int64 { return c.early + (c.late-c.early)/2 }

// comes returns the estimated time of the next hand-out; ok reports whether it is no later than at.
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

// hands advances the estimate by one hand-out; any reports whether it had recipients.
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

// handedOut sets the time of the last hand-out, and its CPU, from a record.
func (c *clock) handedOut(cpu int, at int64) {
	c.by(cpu)
	c.early, c.late = at, at
}

// by sets the CPU that the timer belongs to.
func (c *clock) by(cpu int) {
	if cpu != c.cpu {
		c.cpu, c.due = cpu, 0
	}
}

// tick applies a tick, at which the CPU runs all its timers. It reports whether a hand-out may be due.
func (c *clock) tick(cpu int, at int64) bool {
	if cpu != c.cpu {
		return false
	}
	if c.due != 0 && at > c.due {
		late := at - c.due
		if late > c.usual+muchLate {
			c.from, c.held = c.due, at
			if c.late > c.due { // the hand-out may have been due as well
				c.late = at
			}
		}
		const memory = 8
		c.usual += (min(late, c.usual+muchLate) - c.usual) / memory
	}
	c.due = 0
	return true
}

// ticked sets the time of the next tick.
func (c *clock) ticked(cpu int, at int64) {
	if cpu == c.cpu {
		c.due = at + c.period/ticks
	}
}

// rests applies a CPU's change between idle and busy, which changes the times of its ticks.
func (c *clock) rests(cpu int) {
	if cpu == c.cpu {
		c.due = 0
	}
}

// printed corrects the estimate: by the instant at, more hand-outs had happened than estimated.
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
	if c.early > c.late { // the hand-out was later than usual, or estimated so
		if more == 1 {
			c.early = c.late - doubt
		} else {
			c.late = c.early + doubt
		}
	}
}
