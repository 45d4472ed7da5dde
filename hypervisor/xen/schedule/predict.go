package schedule

import (
	"pegasus/hypervisor/xen/dump"
	"pegasus/hypervisor/xen/trace"
)

// Rules are the scheduler's parameters for a prediction.
type Rules struct {
	Credit2 bool
	Slice   int64 // maximum time that a vCPU runs at once, ns
	Least   int64 // minimum of that, ns
	// Priority returns, under Credit, a vCPU's priority as in dump.VCPU; nil: all have credit left.
	Priority func(id trace.VCPU) int
	// Gets returns, under Credit, the credit in ns that a vCPU has after the next hand-out, at Hands, if it doesn't
	// run until then.
	Gets  func(id trace.VCPU) int64
	Hands int64
	// May reports whether a vCPU may run on a CPU; nil: all may on all.
	May func(id trace.VCPU, cpu int) bool
	// Wakes: sleeping vCPUs are predicted to wake after their average sleep.
	Wakes bool
}

// Prediction is the predicted scheduling of a period.
type Prediction struct {
	Middle []trace.VCPU         // the vCPU on each CPU at the middle of the period; domain trace.Idle: none
	Runs   map[trace.VCPU]int64 // predicted running time of each vCPU, ns
}

// Predict predicts the period that begins now. The hypervisor decides later, at each event: the prediction assumes
// that vCPUs keep their average behaviour.
func (h *History) Predict(r Rules, period int64) Prediction {
	m := model{rules: r, at: h.now}
	for n, c := range h.cpus {
		s := slot{id: n}
		if v := h.vcpus[c.Running]; c.Known && v != nil && c.Running.Domain != trace.Idle {
			s.runs, s.until = m.unit(h, v), c.ends(r.Slice)
			if late := h.now - s.until; late > 0 { // the decision is late; assume the same delay again
				s.until = h.now + late
			}
		}
		m.cpus = append(m.cpus, s)
	}
	for _, v := range h.order {
		if !v.Known || v.State == trace.Runs {
			continue
		}
		u := m.unit(h, v)
		if v.State == trace.Waits {
			m.waits = append(m.waits, u)
		} else if r.Wakes && v.nap.typical != 0 {
			u.ends = h.now + v.nap.left(h.now-v.Since)
			u.left = v.burst.typical
			m.sleep = append(m.sleep, u)
		}
	}
	if r.Credit2 {
		m.expire(h)
	}
	return m.play(period)
}

// expire sets, under Credit2, the end of each run with an unknown slice: when the vCPU has no more credit than the
// next one.
func (m *model) expire(h *History) {
	for i := range m.cpus {
		s := &m.cpus[i]
		if s.runs == nil {
			continue
		}
		if _, ok := h.cpus[i].SliceLeft(h.now); !ok {
			s.until = max(h.now+m.alone(s, h.cpus[i].decided), h.cpus[i].decided+m.rules.Least)
		}
	}
}

// model simulates the scheduling of vCPUs that only run, wait and sleep.
type model struct {
	rules Rules
	at    int64
	cpus  []slot
	waits []*unit
	sleep []*unit

	handed bool // the hand-out of credits is done
}

// slot is a CPU.
type slot struct {
	id    int
	runs  *unit // nil: idle
	until int64
}

// unit is a vCPU.
type unit struct {
	id     trace.VCPU
	cpu    int   // the CPU of the run queue that it is in
	class  int   // Credit: its priority; a higher one goes first
	since  int64 // start of its wait
	credit int64 // Credit2; Credit: see Rules.Gets
	rate   rate
	left   int64 // running time until it sleeps
	ends   int64 // time at which it wakes
	ran    int64
}

func (m *model) unit(h *History, v *VCPU) *unit {
	u := &unit{id: v.ID, cpu: v.CPU, class: dump.Under, since: v.Since, rate: v.perNano}
	u.credit, _ = v.Left(h.now)
	if m.rules.Gets != nil {
		u.credit = m.rules.Gets(v.ID)
	}
	if m.rules.Priority != nil {
		u.class = m.rules.Priority(v.ID)
	} else if v.Boosted {
		u.class = dump.Boost
	}
	burning := v.burning
	if v.State == trace.Runs {
		burning += h.now - v.Since
	}
	u.left = v.burst.left(burning)
	if v.burst.typical == 0 {
		u.left = 1 << 50
	}
	return u
}

func (m *model) play(period int64) Prediction {
	end, middle := m.at+period, m.at+period/2
	p := Prediction{Runs: make(map[trace.VCPU]int64)}
	for m.at < end {
		m.hand()
		m.wake()
		for i := range m.cpus {
			if s := &m.cpus[i]; s.runs == nil || s.until <= m.at || s.runs.left <= 0 {
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

// run advances the model to the next event, at most to a time.
func (m *model) run(to int64, runs map[trace.VCPU]int64) {
	for i := range m.cpus {
		if s := &m.cpus[i]; s.runs != nil {
			to = min(to, s.until, m.at+s.runs.left)
		}
	}
	for _, u := range m.sleep {
		to = min(to, u.ends)
	}
	if m.rules.Gets != nil && m.rules.Hands > m.at {
		to = min(to, m.rules.Hands)
	}
	to = max(to, m.at+1)
	for i := range m.cpus {
		if u := m.cpus[i].runs; u != nil {
			u.ran += to - m.at
			u.left -= to - m.at
			if m.rules.Credit2 {
				u.credit -= u.rate.of(to - m.at)
			} else {
				u.credit -= to - m.at
			}
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

// hand hands out credits when they are due: vCPUs with credit left come before those without.
func (m *model) hand() {
	if m.rules.Gets == nil || m.rules.Hands > m.at || m.handed {
		return
	}
	m.handed = true
	class := func(u *unit) {
		if u.credit < 0 {
			u.class = dump.Over
		} else {
			u.class = dump.Under
		}
	}
	for _, u := range m.waits {
		class(u)
	}
	for i := range m.cpus {
		if u := m.cpus[i].runs; u != nil {
			class(u)
		}
	}
}

// wake wakes the vCPUs that have reached the end of their sleep. A woken vCPU preempts one with lower priority.
func (m *model) wake() {
	kept := m.sleep[:0]
	for _, u := range m.sleep {
		if u.ends > m.at {
			kept = append(kept, u)
			continue
		}
		u.since = m.at
		if u.class == dump.Under {
			u.class = dump.Boost
		}
		m.waits = append(m.waits, u)
		if s := m.weakest(u); s != nil {
			s.until = m.at
		}
	}
	m.sleep = kept
}

// weakest returns the CPU that a woken vCPU preempts; nil: none.
func (m *model) weakest(u *unit) (worst *slot) {
	for i := range m.cpus {
		s := &m.cpus[i]
		if !m.may(u, s.id) {
			continue
		}
		if s.runs == nil {
			return nil
		}
		if m.rules.Credit2 {
			if u.credit > s.runs.credit && (worst == nil || s.runs.credit < worst.runs.credit) {
				worst = s
			}
		} else if u.cpu == s.id && u.class > s.runs.class {
			worst = s
		}
	}
	return worst
}

func (m *model) may(u *unit, cpu int) bool { return m.rules.May == nil || m.rules.May(u.id, cpu) }

// next selects the next vCPU of a CPU.
func (m *model) next(s *slot) {
	if u := s.runs; u != nil {
		s.runs = nil
		if u.left > 0 {
			if u.class == dump.Boost { // a boost ends at the scheduler's next tick
				u.class = dump.Under
			}
			u.cpu, u.since = s.id, m.at
			m.waits = append(m.waits, u)
		}
	}
	best := -1
	for i, u := range m.waits {
		if m.may(u, s.id) && (best < 0 || m.before(s.id, u, m.waits[best])) {
			best = i
		}
	}
	if best < 0 {
		return
	}
	s.runs = m.waits[best]
	m.waits = append(m.waits[:best:best], m.waits[best+1:]...)
	s.until = m.at + max(m.slice(s), m.rules.Least, 1)
}

// before reports whether a CPU selects u before v. Under Credit the vCPUs in its own queue come first, and those of
// other queues only when no vCPU in its own has credit left.
func (m *model) before(cpu int, u, v *unit) bool {
	if m.rules.Credit2 {
		return u.credit > v.credit
	}
	mine, its := u.cpu == cpu, v.cpu == cpu
	switch {
	case mine != its && mine:
		return u.class > dump.Over || u.class >= v.class
	case mine != its:
		return v.class <= dump.Over && u.class > v.class
	case u.class != v.class:
		return u.class > v.class
	}
	return u.since < v.since
}

// slice returns the time that the selected vCPU may run: under Credit2, until it has no more credit than the next
// one, at most until its credit is used up; if it has none, all vCPUs that share the CPU are reset.
func (m *model) slice(s *slot) int64 {
	if !m.rules.Credit2 {
		return m.rules.Slice
	}
	if s.runs.credit <= 0 {
		some := m.rules.Slice
		if s.runs.credit <= -m.rules.Slice {
			some *= 2
		}
		for _, w := range m.waits {
			m.reset(s, w, some)
		}
		for i := range m.cpus {
			if r := m.cpus[i].runs; r != nil {
				m.reset(s, r, some)
			}
		}
	}
	return m.alone(s, m.at)
}

// reset adds credit to a vCPU, up to slightly more than Rules.Slice.
func (m *model) reset(s *slot, u *unit, some int64) {
	const more = 500000
	if m.may(u, s.id) {
		u.credit = min(u.credit+some, m.rules.Slice+more)
	}
}

// alone returns for how long the running vCPU has more credit than those that waited for its CPU at the decision. The
// vCPU that ran there before is not among them: Xen before 4.21 requeues it later.
func (m *model) alone(s *slot, decided int64) int64 {
	most := s.runs.credit
	for _, w := range m.waits {
		if w.credit > 0 && w.since < decided && m.may(w, s.id) {
			most = min(most, s.runs.credit-w.credit)
		}
	}
	return min(s.runs.rate.time(max(most, 0)), m.rules.Slice)
}

// time returns for how many ns a vCPU runs until the credit is used up.
func (r rate) time(credit int64) int64 {
	if r.credit <= 0 {
		return credit
	}
	return rate{r.ns, r.credit}.of(credit)
}
