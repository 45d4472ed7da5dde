package policies

import "time"

// Mode is how a window policy keeps its promises.
type Mode uint8

const (
	// Production corrects every overrun and gives idle time away.
	Production Mode = iota
	// Paper does as the published algorithm: whole ticks, nothing corrected.
	Paper
)

func (m Mode) String() string {
	if m == Paper {
		return "paper"
	}
	return "production"
}

// Options are the parameters of the window policies.
type Options struct {
	Mode        Mode
	Tick        time.Duration // window of the domain with the least credits; 0: 30 ms
	RotationCap time.Duration // no rotation is meant to be longer; 0: 1 s
	IdleYield   time.Duration // a window idle for so long is given up; 0: never
}

// Defaults returns the options of a mode.
func Defaults(m Mode) Options {
	o := Options{Mode: m}.filled()
	if m == Production {
		o.IdleYield = 2 * time.Millisecond
	}
	return o
}

func (o Options) filled() Options {
	if o.Tick <= 0 {
		o.Tick = 30 * time.Millisecond
	}
	if o.RotationCap <= 0 {
		o.RotationCap = time.Second
	}
	o.RotationCap = max(o.RotationCap, o.Tick)
	return o
}
