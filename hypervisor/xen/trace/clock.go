package trace

import (
	"errors"
	"math/bits"

	"golang.org/x/sys/unix"
)

// Instant is a time on both clocks: the CPU's time-stamp counter, as in records, and ours.
type Instant struct {
	Ticks uint64
	Nanos int64
}

// Now returns this instant, by CLOCK_MONOTONIC. Between reading one clock and the other a vCPU may be preempted for
// milliseconds, so the closest of some pairs is used.
func Now() (i Instant) {
	const tries = 5
	closest := ^uint64(0)
	for range tries {
		var t unix.Timespec
		before := stamp()
		unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // which can't fail
		if apart := stamp() - before; apart < closest {
			i, closest = Instant{Ticks: before + apart/2, Nanos: t.Nano()}, apart
		}
	}
	return i
}

// Clock converts times of records into our time, from the instant last set and the ratio of the clocks' rates since
// the first.
type Clock struct{ first, last Instant }

// NewClock returns a Clock from two instants; it is more precise the further apart they are.
func NewClock(first, last Instant) (*Clock, error) {
	if last.Ticks <= first.Ticks || last.Nanos <= first.Nanos {
		return nil, errors.New("the CPU's time-stamp counter doesn't go on")
	}
	return &Clock{first, last}, nil
}

// Set adds an instant, which is ignored unless it is later than all before.
func (c *Clock) Set(i Instant) {
	if i.Ticks > c.last.Ticks && i.Nanos > c.last.Nanos {
		c.last = i
	}
}

// Nanos returns a record's time in our ns.
func (c *Clock) Nanos(ticks uint64) int64 {
	if ticks < c.last.Ticks {
		return c.last.Nanos - c.span(c.last.Ticks-ticks)
	}
	return c.last.Nanos + c.span(ticks-c.last.Ticks)
}

// longest bounds a difference of times: one of another clock can have any value.
const longest = 1 << 62

func (c *Clock) span(ticks uint64) int64 {
	hi, lo := bits.Mul64(ticks, uint64(c.last.Nanos-c.first.Nanos))
	by := c.last.Ticks - c.first.Ticks
	if hi >= by {
		return longest
	}
	ns, _ := bits.Div64(hi, lo, by)
	return int64(min(ns, longest))
}

// Calibrate returns a Clock with a rate that it estimates from the records' own running times of vCPUs; our time
// begins with the first record.
func Calibrate(records []Record) (*Clock, error) {
	type stint struct {
		who  VCPU
		from uint64
	}
	const (
		leastRun  = 1000000 // ns; shorter runs are imprecise
		mostTicks = 1 << 31 // else the 32-bit number of ns may have wrapped
	)
	running := make(map[int]stint)
	var ticks, ns uint64
	for i := range records {
		r := &records[i]
		switch {
		case r.Event == SwitchNext && r.N >= 3:
			running[r.CPU] = stint{r.Named(0), r.At}
		case r.Event == SwitchPrev && r.N >= 3:
			s, ok := running[r.CPU]
			if ok && s.who == r.Named(0) && r.Words[2] >= leastRun && r.At > s.from && r.At-s.from < mostTicks {
				ticks += r.At - s.from
				ns += uint64(r.Words[2])
			}
		}
	}
	if ns == 0 {
		return nil, errors.New("no record has a vCPU's run time; trace the class of switches (0x28000)")
	}
	first := Instant{Ticks: records[0].At}
	return NewClock(first, Instant{first.Ticks + ticks, int64(ns)})
}

// Ticks returns the ticks of the records' clock in a time.
func (c *Clock) Ticks(ns int64) uint64 {
	hi, lo := bits.Mul64(uint64(max(ns, 0)), c.last.Ticks-c.first.Ticks)
	by := uint64(c.last.Nanos - c.first.Nanos)
	if hi >= by {
		return longest
	}
	ticks, _ := bits.Div64(hi, lo, by)
	return ticks
}
