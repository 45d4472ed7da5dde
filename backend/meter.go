package backend

// A meter keeps a growing total at the latest samples, to compute its recent growth.
type meter struct {
	at, total [meterBeats]int64
	n         int // samples ever taken
}

// meterBeats is the number of samples, sampleEvery apart, in the window of reported shares.
const meterBeats = 9

func (m *meter) sample(now, total int64) {
	i := m.n % meterBeats
	m.at[i], m.total[i] = now, total
	m.n++
}

// grown returns the growth of the total over the window, and the window's length in ns.
func (m *meter) grown() (total, ns int64) {
	if m.n < 2 {
		return 0, 0
	}
	last, first := (m.n-1)%meterBeats, 0
	if m.n > meterBeats {
		first = m.n % meterBeats
	}
	return m.total[last] - m.total[first], m.at[last] - m.at[first]
}

// part returns the growth of the total over the window, per nanosecond.
func (m *meter) part() float64 {
	total, ns := m.grown()
	if ns <= 0 {
		return 0
	}
	return float64(total) / float64(ns)
}

// resting reports that the total did not grow over the window, so that another sample changes no result.
func (m *meter) resting() bool {
	total, ns := m.grown()
	return m.n > meterBeats && total == 0 && ns > 0
}
