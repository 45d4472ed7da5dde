package policies

import "time"

// publishedSLAF is slaf as published: an objective is compared to the length of a domain's windows, and an
// extra tick counts like any other. So a domain that meets its objective only by extra ticks gets none any
// more, and too little after the next scan.
type publishedSLAF struct{ *slaf }

func newPublishedSLAF(o Options) Policy {
	p := publishedSLAF{newObjectives(o)}
	w := newRing("slaf", o, byBothSides)
	w.extra = p.extra
	p.windows = w
	p.passes = func(o *objective, d time.Duration) { o.served += d }
	return p
}

// Keeps returns false: the windows have no accounts.
func (p publishedSLAF) Keeps() bool { return false }

func (p publishedSLAF) Charge(now Time, id ID, u Usage) { p.windows.Charge(now, id, u) }
