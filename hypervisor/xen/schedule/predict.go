package schedule

import (
	"slices"

	"pegasus/hypervisor/xen/trace"
)

// Rules are what a prediction goes by.
type Rules struct {
	Credit2 bool
	Slice   int64 // for how long a vCPU may run at once, ns
	Least   int64 // for how long it does at least
	// Over says of a vCPU that it has no credit left, so that it comes behind those that have
	// some, under Credit; nil: of none.
	Over func(id trace.VCPU) bool
}

// Prediction is what may happen in a period.
type Prediction struct {
	Middle []trace.VCPU         // who runs on each CPU at the middle of the period; of domain trace.Idle: nobody
	Runs   map[trace.VCPU]int64 // for how long each vCPU runs in it, ns
}

// Predict foretells the period that begins now. The hypervisor itself decides later, at each
// event; this is what it would do if no vCPU woke or slept meanwhile.
func (h *History) Predict(r Rules, period int64) Prediction {
	m := model{rules: r, at: h.now}
	for n, c := range h.cpus {
		s := slot{id: n}
		if v := h.vcpus[c.Running]; c.Known && v != nil && c.Running.Domain != trace.Idle {
			s.runs, s.until = m.unit(h, v), h.now+r.Slice
			if left, ok := c.SliceLeft(h.now); ok {
				s.until = h.now + left
			}
		}
		m.cpus = append(m.cpus, s)
	}
	for _, v := range h.order {
		if v.Known && v.State == trace.Waits {
			m.waits = append(m.waits, m.unit(h, v))
		}
	}
	return m.play(period)
}

// model is what happens when vCPUs only run and wait.
type model struct {
	rules Rules
	at    int64
	cpus  []slot
	waits []*unit
}

// slot is a CPU.
type slot struct {
	id    int
	runs  *unit // nil: nobody
	until int64
}

// unit is a vCPU.
type unit struct {
	id     trace.VCPU
	cpu    int   // in whose queue it is
	class  int   // Credit: a lower one goes first
	since  int64 // it waits
	credit int64 // Credit2
	rate   rate
	ran    int64
}

// Classes, as Credit's priorities.
const (
	boosted = iota
	under
	over
)

func (m *model) unit(h *History, v *VCPU) *unit {
	u := &unit{id: v.ID, cpu: v.CPU, class: under, since: v.Since, rate: v.perNano}
	u.credit, _ = v.Left(h.now)
	switch {
	case v.Boosted:
		u.class = boosted
	case m.rules.Over != nil && m.rules.Over(v.ID):
		u.class = over
	}
	return u
}

func (m *model) play(period int64) Prediction {
	end, middle := m.at+period, m.at+period/2
	p := Prediction{Runs: make(map[trace.VCPU]int64)}
	for m.at < end {
		for i := range m.cpus {
			if s := &m.cpus[i]; s.runs == nil || s.until <= m.at {
				m.next(s)
			}
		}
		to := end
		if m.at < middle {
			to = middle
		} else if p.Middle == nil {
			p.Middle = m.running()
		}
		m.run(to, p.Runs)
	}
	return p
}

// run has all that run do so until one has done so for its slice, or to a time.
func (m *model) run(to int64, runs map[trace.VCPU]int64) {
	for i := range m.cpus {
		if s := &m.cpus[i]; s.runs != nil {
			to = min(to, s.until)
		}
	}
	for i := range m.cpus {
		if u := m.cpus[i].runs; u != nil {
			u.ran += to - m.at
			u.credit -= u.rate.of(to - m.at)
			runs[u.id] = u.ran
		}
	}
	m.at = to
}

func (m *model) running() (all []trace.VCPU) {
	for i := range m.cpus {
		id := trace.VCPU{Domain: trace.Idle, Number: uint16(i)}
		if u := m.cpus[i].runs; u != nil {
			id = u.id
		}
		all = append(all, id)
	}
	return all
}

// next has a CPU take the next one.
func (m *model) next(s *slot) {
	if u := s.runs; u != nil {
		if u.class == boosted { // which ends at the scheduler's next tick
			u.class = under
		}
		u.cpu, u.since = s.id, m.at
		m.waits = append(m.waits, u)
		s.runs = nil
	}
	if len(m.waits) == 0 {
		return
	}
	best := 0
	for i, u := range m.waits {
		if m.before(s.id, u, m.waits[best]) {
			best = i
		}
	}
	s.runs = m.waits[best]
	m.waits = slices.Delete(m.waits, best, best+1)
	s.until = m.at + max(m.slice(s.runs), m.rules.Least, 1)
}

// before says whether a CPU takes u rather than v. Under Credit those in its own queue come first,
// and those of others only where nobody is in it.
func (m *model) before(cpu int, u, v *unit) bool {
	if m.rules.Credit2 {
		return u.credit > v.credit
	}
	if mine, its := u.cpu == cpu, v.cpu == cpu; mine != its {
		return mine
	}
	if u.class != v.class {
		return u.class < v.class
	}
	return u.since < v.since
}

// slice is for how long a vCPU may run: under Credit2, until it has no more credit than the next
// one, and no more than there is; if that one has none, all get some.
func (m *model) slice(u *unit) int64 {
	if !m.rules.Credit2 {
		return m.rules.Slice
	}
	if u.credit <= 0 {
		for _, w := range m.waits {
			w.credit += m.rules.Slice
		}
		for i := range m.cpus {
			if r := m.cpus[i].runs; r != nil {
				r.credit += m.rules.Slice
			}
		}
	}
	most := u.credit
	for _, w := range m.waits {
		if w.credit > 0 {
			most = min(most, u.credit-w.credit)
		}
	}
	return min(u.rate.time(max(most, 0)), m.rules.Slice)
}

// time is how long it takes until so much credit is gone.
func (r rate) time(credit int64) int64 {
	if r.credit <= 0 {
		return credit
	}
	return rate{r.ns, r.credit}.of(credit)
}
