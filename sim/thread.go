package sim

import "time"

// thread runs a program, on a virtual CPU of its own or, in experiments without CPUs, as if it had a CPU to
// itself.
type thread struct {
	index   int32
	domain  *domain
	program *program
	chance  *stream

	cpu        *pcpu // nil: it has one to itself
	mode       mode
	left       time.Duration // CPU time until the burst ends, as of since
	since      Time          // when left was computed
	dispatched Time
	billed     Time
	gen        uint32
	credit     credit
	fair       entity

	at          int // step
	loops       int
	outstanding int
	waits       bool // for a request to end
	most        int  // outstanding requests at which it continues
	began       Time // start of the run
	released    Time
}

// proceed runs the program until it has to wait.
func (s *Sim) proceed(t *thread) {
	p := t.program
	for {
		st := &p.steps[t.at]
		t.at++
		switch st.op {
		case think:
			s.need(t, working, s.thinking.times(st.d, t.chance))
			return
		case submit:
			t.outstanding++
			s.issue(t, st)
			if t.outstanding >= p.ahead && s.waits(t, p.ahead-1) {
				return
			}
		case settle:
			if s.waits(t, 0) {
				return
			}
		case repeat:
			if t.loops++; t.loops < st.times {
				t.at = st.to
			} else {
				t.loops = 0
			}
		case sleep:
			s.sleep(t, s.now.Add(st.d))
			return
		case end:
			if s.finish(t) {
				return
			}
		}
	}
}

// waits reports whether more than most requests are outstanding, and if so makes the thread wait: spinning
// first, where CPUs are modelled.
func (s *Sim) waits(t *thread, most int) bool {
	if t.outstanding <= most {
		return false
	}
	t.waits, t.most = true, most
	switch {
	case t.cpu == nil:
		t.mode = blocked
	case t.mode != blocked:
		s.need(t, spinning, s.profile.Spin)
	}
	return true
}

// burstEnds ends a burst: the thread has had its CPU time.
func (s *Sim) burstEnds(t *thread) {
	if t.domain.gone {
		return
	}
	t.left = 0
	if t.mode == spinning {
		s.rest(t)
		return
	}
	if t.cpu == nil {
		t.mode = blocked
	}
	s.proceed(t)
}

// reply reports to a thread that a request has ended.
func (s *Sim) reply(t *thread) {
	t.outstanding--
	if t.domain.gone {
		return
	}
	if !t.waits || t.outstanding > t.most {
		return
	}
	t.waits = false
	s.proceed(t)
}

// sleep blocks the thread until then.
func (s *Sim) sleep(t *thread, until Time) {
	s.block(t)
	s.agenda.add(until, awoken, t.index, t.gen)
}

func (s *Sim) block(t *thread) {
	if t.cpu != nil && t.mode != blocked {
		s.leaveCPU(t)
	}
	t.mode = blocked
}

// leaveCPU blocks a thread that runs or is runnable.
func (s *Sim) leaveCPU(t *thread) {
	if t.cpu.running == t {
		s.rest(t)
		return
	}
	if t.cpu.fair {
		t.cpu.depart(s, t)
	}
	for i, o := range t.cpu.queue {
		if o == t {
			t.cpu.queue = append(t.cpu.queue[:i], t.cpu.queue[i+1:]...)
			break
		}
	}
	t.mode = blocked
}

// finish ends a run and begins the next, unless that is to be released later.
func (s *Sim) finish(t *thread) (waits bool) {
	t.domain.ran(s, t)
	t.at = 0
	t.began = s.now
	if n := t.domain.spec.Runs; n > 0 && len(t.domain.runs) >= n {
		s.block(t)
		return true
	}
	if t.domain.spec.Away > 0 {
		t.domain.returns = true
		s.agenda.add(s.now, vanished, t.domain.index, 0)
		s.block(t)
		return true
	}
	if t.program.period > 0 {
		t.released = t.released.Add(t.program.period)
		if t.released > s.now {
			t.began = t.released
			s.sleep(t, t.released)
			return true
		}
		t.began = t.released
	}
	return false
}
