package bell

import (
	"context"
	"time"

	"pegasus/callbuf/region"
)

// A side without work polls at growing intervals. Once they are at their longest, and both sides have a port,
// it publishes Asleep and sleeps, with a poll now and then.
const (
	firstPause   = 200 * time.Microsecond
	longestPause = 10 * time.Millisecond
	lookAnyway   = time.Second
)

// Words are a side's words in the control area: a *region.Guest or a *region.Host.
type Words interface {
	SetBell(region.Bell)
	Bell() region.Bell // of the other side
}

// Sleeper implements a side's wait for work.
type Sleeper struct {
	port   *Port
	events <-chan func() // functions that other goroutines of this side submit
	pause  time.Duration
}

// NewSleeper returns a Sleeper that a port and events can wake.
func NewSleeper(p *Port, events <-chan func()) *Sleeper {
	return &Sleeper{port: p, events: events, pause: firstPause}
}

// Worked records that there was work: more may follow soon.
func (s *Sleeper) Worked() { s.pause = firstPause }

// Notify rings if the other side sleeps. It must be called after data was left for that side.
func (s *Sleeper) Notify(w Words) {
	if w.Bell() == region.Asleep {
		s.port.Ring()
	}
}

// Sleep blocks until the next poll is due, and runs submitted functions meanwhile. w is nil as long as there
// is no control area: then a live port will be rung. look polls once more, and reports whether there was
// work. The result reports whether the port rang.
func (s *Sleeper) Sleep(ctx context.Context, w Words, look func() bool) (rung bool) {
	live := s.port.Live()
	long := live && s.pause >= longestPause && (w == nil || w.Bell() != region.NoBell)
	pause := s.pause
	if long {
		pause = lookAnyway
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
	t := time.NewTimer(pause)
	defer t.Stop()
	select {
	case do := <-s.events:
		do()
		s.Worked()
	case <-s.port.Rings():
		return true
	case <-t.C:
		s.pause = min(s.pause+s.pause/4, longestPause)
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
