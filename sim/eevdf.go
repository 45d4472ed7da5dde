package sim

import "time"

// Linux' scheduler since 6.6: of the threads that have had no more than their part,
// the one with the earliest virtual deadline runs, and keeps the CPU until its slice
// is over. What a thread was owed or owed when it went to sleep it finds again.
const (
	eevdfSlice = 3 * time.Millisecond
	fairUnit   = 1 << 16 // virtual time per time of a thread of weight 1
)

// entity is a thread as EEVDF sees it, in virtual time.
type entity struct {
	ran      int64 // more than another's: it is ahead of it
	deadline int64
	lag      int64 // what it was owed when it went to sleep
}

// virtual is what a time on the CPU is worth to a thread.
func (t *thread) virtual(d time.Duration) int64 {
	return int64(d) * fairUnit / t.domain.weight
}

// average is the virtual time of the threads that run or are runnable, by weight:
// who is not beyond it may run.
func (p *pcpu) average() int64 {
	var base, sum, weight int64
	add := func(t *thread) {
		w := t.domain.weight
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

// arrive gives a thread that wakes its place in virtual time: as far behind or ahead
// of the others as it was, which moves when it joins them.
func (p *pcpu) arrive(s *Sim, t *thread) {
	if p.running != nil {
		s.bill(p.running)
	}
	weight := int64(0)
	for _, o := range append(p.queue[:len(p.queue):len(p.queue)], p.running) {
		if o != nil {
			weight += o.domain.weight
		}
	}
	lag := t.fair.lag
	if weight > 0 {
		lag += lag * t.domain.weight / weight
	}
	t.fair.ran = p.average() - lag
	t.fair.deadline = t.fair.ran + t.virtual(s.slicing)
}

// depart keeps what a thread is owed that goes to sleep, which is at most two slices.
func (p *pcpu) depart(s *Sim, t *thread) {
	if p.running != nil {
		s.bill(p.running)
	}
	most := t.virtual(2 * s.slicing)
	t.fair.lag = min(max(p.average()-t.fair.ran, -most), most)
}

// earliest is the index of who is next in the queue.
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

// fairSlice arms the end of the runner's slice, if somebody waits.
func (s *Sim) fairSlice(p *pcpu) {
	t := p.running
	s.bill(t)
	left := max(t.fair.deadline-t.fair.ran, 0) * t.domain.weight / fairUnit
	p.slicing = true
	p.gen++
	s.agenda.add(s.now.Add(time.Duration(left)), rotated, int32(p.id), p.gen)
}

// fairRotate is the end of a slice: who has had it gets another deadline.
func (s *Sim) fairRotate(p *pcpu) {
	t := p.running
	s.bill(t)
	if t.fair.deadline-t.fair.ran <= t.virtual(time.Microsecond) {
		t.fair.deadline = t.fair.ran + t.virtual(s.slicing)
	}
	s.preempt(p)
}

// coming is how much of the next period a thread is expected to run, in ‰: its part
// of those that want its CPU now.
func (t *thread) coming() int {
	if t.mode == blocked {
		return 0
	}
	var all int64
	for _, o := range append(t.cpu.queue[:len(t.cpu.queue):len(t.cpu.queue)], t.cpu.running) {
		if o != nil {
			all += o.domain.weight
		}
	}
	return int(1000 * t.domain.weight / max(all, 1))
}
