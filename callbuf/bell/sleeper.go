package bell

import (
	"context"
	"time"

	"pegasus/callbuf/region"
)

// A side that has nothing to do looks again after naps, the longer the rarer. Once they
// are at their longest, and both sides have a port, it says that it is to be rung and
// sleeps, but for a look now and then.
const (
	firstNap   = 200 * time.Microsecond
	longestNap = 10 * time.Millisecond
	lookAnyway = time.Second
)

// Words are a side's words in the control area: a *region.Guest or a *region.Host.
type Words interface {
	SetBell(region.Bell)
	Bell() region.Bell // of the other side
}

// Sleeper is how a side waits when there is nothing to do.
type Sleeper struct {
	port   *Port
	events <-chan func() // what others of this side want done
	nap    time.Duration
}

// NewSleeper is a Sleeper that can be woken by a port and by events.
func NewSleeper(p *Port, events <-chan func()) *Sleeper {
	return &Sleeper{port: p, events: events, nap: firstNap}
}

// Worked says that there was something to do: there may be more soon.
func (s *Sleeper) Worked() { s.nap = firstNap }

// Notify rings if the other side sleeps. It is to be called after something was left for it.
func (s *Sleeper) Notify(w Words) {
	if w.Bell() == region.Asleep {
		s.port.Ring()
	}
}

// Sleep waits until it is time to look, and does what others want done meanwhile. w is nil
// as long as there is no control area: then a port that lives will be rung. look looks
// once more, and says whether there was something to do. It is said whether the port rang.
func (s *Sleeper) Sleep(ctx context.Context, w Words, look func() bool) (rung bool) {
	live := s.port.Live()
	long := live && s.nap >= longestNap && (w == nil || w.Bell() != region.NoBell)
	nap := s.nap
	if long {
		nap = lookAnyway
	}
	if w != nil {
		w.SetBell(wayOfWaiting(live, long))
		if long {
			defer w.SetBell(region.Awake)
			if look() {
				s.Worked()
				return false
			}
		}
	}
	t := time.NewTimer(nap)
	defer t.Stop()
	select {
	case do := <-s.events:
		do()
		s.Worked()
	case <-s.port.Rings():
		return true
	case <-t.C:
		s.nap = min(s.nap+s.nap/4, longestNap)
	case <-ctx.Done():
	}
	return false
}

func wayOfWaiting(live, long bool) region.Bell {
	switch {
	case long:
		return region.Asleep
	case live:
		return region.Awake
	default:
		return region.NoBell
	}
}
