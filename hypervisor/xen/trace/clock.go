package trace

import (
	"errors"
	"math/bits"

	"golang.org/x/sys/unix"
)

// Instant is a time by a record's clock, the CPU's time-stamp counter, and by ours.
type Instant struct {
	Ticks uint64
	Nanos int64
}

// Now is this instant, by CLOCK_MONOTONIC. Between looks at one clock and the other a vCPU may be kept
// from running for milliseconds, so the closest of some pairs counts.
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

// Clock tells a record's time by ours. It goes by the instant that it was last set to, and by how
// fast one clock went on the other since the first.
type Clock struct{ first, last Instant }

// NewClock goes by two instants; the further apart they are, the better it goes.
func NewClock(first, last Instant) (*Clock, error) {
	if last.Ticks <= first.Ticks || last.Nanos <= first.Nanos {
		return nil, errors.New("the CPU's time-stamp counter doesn't go on")
	}
	return &Clock{first, last}, nil
}

// Set tells it an instant that is later than all before; one that isn't says nothing.
func (c *Clock) Set(i Instant) {
	if i.Ticks > c.last.Ticks && i.Nanos > c.last.Nanos {
		c.last = i
	}
}

// Nanos is when a record's time was.
func (c *Clock) Nanos(ticks uint64) int64 {
	if ticks < c.last.Ticks {
		return c.last.Nanos - c.span(c.last.Ticks-ticks)
	}
	return c.last.Nanos + c.span(ticks-c.last.Ticks)
}

// longest is the most that two times can differ by: a time of another clock is nonsense.
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

// Calibrate finds out from records themselves how fast their clock goes, by what they say of how
// long vCPUs ran; our time begins with the first record.
func Calibrate(records []Record) (*Clock, error) {
	type stint struct {
		who  VCPU
		from uint64
	}
	const (
		leastRun  = 1000000 // ns; what is shorter says little
		mostTicks = 1 << 31 // else the number of ns, which has 32 bits, may be another's
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
		return nil, errors.New("no record says how long a vCPU ran: was the class of switches noted (0x28000)?")
	}
	first := Instant{Ticks: records[0].At}
	return NewClock(first, Instant{first.Ticks + ticks, int64(ns)})
}

// Ticks is how many of a record's clock there are in a time.
func (c *Clock) Ticks(ns int64) uint64 {
	hi, lo := bits.Mul64(uint64(max(ns, 0)), c.last.Ticks-c.first.Ticks)
	by := uint64(c.last.Nanos - c.first.Nanos)
	if hi >= by {
		return longest
	}
	ticks, _ := bits.Div64(hi, lo, by)
	return ticks
}
