// Package meter measures the recent growth of totals, such as a domain's time on an accelerator.
//
// Callers: backend and its packages. The owner of a Meter guards it.
//
// Trust boundary: none.
package meter

// Meter keeps a growing total at the latest samples, to compute its recent growth.
type Meter struct {
	at, total [beats]int64
	n         int // samples ever taken
}

// Intervals is the number of intervals between samples over which a Meter reports the growth.
const Intervals = 8

const beats = Intervals + 1

// Sample adds the total at a time in nanoseconds.
func (m *Meter) Sample(now, total int64) {
	i := m.n % beats
	m.at[i], m.total[i] = now, total
	m.n++
}

// Growth returns the growth of the total over the window, and the window's length in ns.
func (m *Meter) Growth() (total, ns int64) {
	if m.n < 2 {
		return 0, 0
	}
	last, first := (m.n-1)%beats, 0
	if m.n > beats {
		first = m.n % beats
	}
	return m.total[last] - m.total[first], m.at[last] - m.at[first]
}

// Rate returns the growth of the total over the window, per nanosecond.
func (m *Meter) Rate() float64 {
	total, ns := m.Growth()
	if ns <= 0 {
		return 0
	}
	return float64(total) / float64(ns)
}

// Resting reports that the total did not grow over the window, so that another sample changes no result.
func (m *Meter) Resting() bool {
	total, ns := m.Growth()
	return m.n > beats && total == 0 && ns > 0
}
