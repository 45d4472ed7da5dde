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

// Options are the parameters of the policies.
type Options struct {
	Mode        Mode
	Tick        time.Duration // window of the domain with the least credits; 0: 30 ms
	RotationCap time.Duration // no rotation is meant to be longer; 0: 1 s
	IdleYield   time.Duration // a window idle for so long is given up; 0: never

	// DebtAF makes domains repay what they overran, in paper mode: one part in so
	// many of it in each of their windows; 0: never.
	DebtAF int
	// Boost is how many times CPU credit counts under augc, up to 16; 0: 4 times, if
	// negative: not at all.
	Boost   int
	MaxSkip int // cosched: ticks for which a domain with work is passed over; 0: 4

	// ByCredits lets slaf, augc and cosched count by accelerator credits even if CPU
	// credits are known.
	ByCredits bool
	Scan      time.Duration // slaf: how often objectives are looked at; 0: 1 s

	// Of lag:
	Wait       time.Duration // longest pause for which the accelerator is kept; 0: 2 ms
	Ahead      time.Duration // how far one may get ahead of another; 0: from what a switch costs
	SwitchCost time.Duration // of a change of contexts, until it has been measured; 0: 250 µs

	RequestOptions
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
	if o.Mode != Paper {
		o.DebtAF = 0 // balances are corrected at once
	}
	if o.Boost == 0 {
		o.Boost = 4
	}
	o.Boost = min(o.Boost, 16)
	if o.MaxSkip <= 0 {
		o.MaxSkip = 4
	}
	if o.Scan <= 0 {
		o.Scan = time.Second
	}
	if o.Wait <= 0 {
		o.Wait = 2 * time.Millisecond
	}
	if o.SwitchCost <= 0 {
		o.SwitchCost = 250 * time.Microsecond
	}
	o.RequestOptions = o.RequestOptions.filled()
	return o
}
