package sim

import "time"

// Linux' scheduler since 6.6: of the threads that have had no more than their part, the one with the earliest
// virtual deadline runs, and keeps the CPU until its slice is over. A thread that wakes up has the same lag,
// positive or negative, as when it went to sleep.
const (
	eevdfSlice = 3 * time.Millisecond
	fairUnit   = 1 << 16 // virtual time per time of a thread of weight 1
)

// entity is a thread's state under EEVDF, in virtual time.
type entity struct {
	ran      int64 // beyond another thread's: it is ahead of that thread
	deadline int64
	lag      int64 // its lag when it went to sleep
}

// virtual returns the virtual time of a CPU time of a thread.
func (t *thread) virtual(d time.Duration) int64 {
	return int64(d) * fairUnit / t.domain.cpu.weight
}

// average returns the mean virtual time of the running and runnable threads, by weight: a thread that is not
// beyond it is eligible.
func (p *pcpu) average() int64 {
	var base, sum, weight int64
	add := func(t *thread) {
		w := t.domain.cpu.weight
		if weight == 0 {
			base = t.fair.ran
		}
		sum, weight = sum+(t.fair.ran-base)*w, weight+w
	}
	if p.running != nil {
		add(p.running)
	}
	for _, t := range p.queue {
		add(t)
	}
	if weight == 0 {
		return p.clock
	}
	p.clock = base + sum/weight
	return p.clock
}

// arrive gives a waking thread its place in virtual time: as far behind or ahead of the others as it was,
// corrected for the average's move when it joins them.
func (p *pcpu) arrive(m *processors, t *thread) {
	if p.running != nil {
		m.bill(p.running)
	}
	weight := int64(0)
	for _, o := range append(p.queue[:len(p.queue):len(p.queue)], p.running) {
		if o != nil {
			weight += o.domain.cpu.weight
		}
	}
	lag := t.fair.lag
	if weight > 0 {
		lag += lag * t.domain.cpu.weight / weight
	}
	t.fair.ran = p.average() - lag
	t.fair.deadline = t.fair.ran + t.virtual(m.slicing)
}

// depart stores the lag of a thread that goes to sleep, at most two slices.
func (p *pcpu) depart(m *processors, t *thread) {
	if p.running != nil {
		m.bill(p.running)
	}
	most := t.virtual(2 * m.slicing)
	t.fair.lag = min(max(p.average()-t.fair.ran, -most), most)
}

// earliest returns the index of the next thread in the queue.
func (p *pcpu) earliest() int {
	average := p.average()
	best := 0
	for i, t := range p.queue {
		o := p.queue[best]
		switch {
		case t.credit.priority != o.credit.priority:
			if t.credit.priority > o.credit.priority {
				best = i
			}
		case (t.fair.ran <= average) != (o.fair.ran <= average):
			if t.fair.ran <= average {
				best = i
			}
		case t.fair.deadline < o.fair.deadline:
			best = i
		}
	}
	return best
}

// fairSlice arms the end of the runner's slice, if another thread waits.
func (m *processors) fairSlice(p *pcpu) {
	t := p.running
	m.bill(t)
	left := max(t.fair.deadline-t.fair.ran, 0) * t.domain.cpu.weight / fairUnit
	p.slicing = true
	p.gen++
	m.after(time.Duration(left), rotated, int32(p.id), p.gen)
}

// fairRotate ends a slice: the runner gets another deadline.
func (m *processors) fairRotate(p *pcpu) {
	t := p.running
	m.bill(t)
	if t.fair.deadline-t.fair.ran <= t.virtual(time.Microsecond) {
		t.fair.deadline = t.fair.ran + t.virtual(m.slicing)
	}
	m.preempt(p)
}

// coming returns the expected part, in ‰, of the next period that a thread runs: its share among the threads
// that compete for its CPU now.
func (t *thread) coming() int {
	if t.mode == blocked {
		return 0
	}
	var all int64
	for _, o := range append(t.cpu.queue[:len(t.cpu.queue):len(t.cpu.queue)], t.cpu.running) {
		if o != nil {
			all += o.domain.cpu.weight
		}
	}
	return int(1000 * t.domain.cpu.weight / max(all, 1))
}
