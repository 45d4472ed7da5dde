package policies

import "time"

// Mode is the way in which a window policy keeps its promises.
type Mode uint8

const (
	// Production corrects every overrun and distributes idle time.
	Production Mode = iota
	// Paper follows the published algorithm: whole ticks, without corrections.
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
	RotationCap time.Duration // intended limit of a rotation's length; 0: 1 s
	IdleYield   time.Duration // a window that is idle for this long is given up; 0: never

	// DebtAF makes domains repay their overruns, in paper mode: 1/DebtAF of the debt in each of their
	// windows; 0: never.
	DebtAF int
	// Boost is the factor of CPU credit under augc, up to 16; 0: 4; negative: no boost.
	Boost   int
	MaxSkip int // cosched: ticks for which a domain with work is passed over; 0: 4

	// ByCredits makes slaf, augc and cosched use accelerator credits even if there are CPU credits.
	ByCredits bool
	Scan      time.Duration // slaf: interval of the evaluation of objectives; 0: 1 s

	// Options of lag:
	Wait       time.Duration // longest pause for which the accelerator is kept; 0: 2 ms
	Ahead      time.Duration // greatest lead of one domain over another; 0: from the cost of a switch
	SwitchCost time.Duration // of a change of contexts, until one has been measured; 0: 250 µs

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
