package sim

import "time"

// guests run the domains' programs: each thread computes, calls the backend, and waits for the ends of its calls.
type guests struct {
	*clock
	cpus     *processors
	backend  *backend
	spin     time.Duration // for which a thread spins for a reply before it blocks
	thinking *spread       // of the programs' CPU times
}

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
func (g *guests) proceed(t *thread) {
	p := t.program
	for {
		st := &p.steps[t.at]
		t.at++
		switch st.op {
		case think:
			g.cpus.need(t, working, g.thinking.times(st.d, t.chance))
			return
		case submit:
			t.outstanding++
			g.backend.issue(t, st)
			if t.outstanding >= p.ahead && g.waits(t, p.ahead-1) {
				return
			}
		case settle:
			if g.waits(t, 0) {
				return
			}
		case repeat:
			if t.loops++; t.loops < st.times {
				t.at = st.to
			} else {
				t.loops = 0
			}
		case sleep:
			g.sleep(t, g.now.Add(st.d))
			return
		case end:
			if g.finish(t) {
				return
			}
		}
	}
}

// waits reports whether more than most requests are outstanding, and if so makes the thread wait: spinning
// first, where CPUs are modelled.
func (g *guests) waits(t *thread, most int) bool {
	if t.outstanding <= most {
		return false
	}
	t.waits, t.most = true, most
	switch {
	case t.cpu == nil:
		t.mode = blocked
	case t.mode != blocked:
		g.cpus.need(t, spinning, g.spin)
	}
	return true
}

// burstEnds ends a burst: the thread has had its CPU time.
func (g *guests) burstEnds(t *thread) {
	if t.domain.presence.gone {
		return
	}
	t.left = 0
	if t.mode == spinning {
		g.cpus.rest(t)
		return
	}
	if t.cpu == nil {
		t.mode = blocked
	}
	g.proceed(t)
}

// reply reports to a thread that a request has ended.
func (g *guests) reply(t *thread) {
	t.outstanding--
	if t.domain.presence.gone {
		return
	}
	if !t.waits || t.outstanding > t.most {
		return
	}
	t.waits = false
	g.proceed(t)
}

// sleep blocks the thread until then.
func (g *guests) sleep(t *thread, until Time) {
	g.cpus.block(t)
	g.at(until, awoken, t.index, t.gen)
}

// finish ends a run and begins the next, unless that is to be released later.
func (g *guests) finish(t *thread) (waits bool) {
	g.ran(t)
	t.at = 0
	t.began = g.now
	if n := t.domain.spec.Runs; n > 0 && len(t.domain.runs) >= n {
		g.cpus.block(t)
		return true
	}
	if t.domain.spec.Away > 0 {
		t.domain.presence.returns = true
		g.at(g.now, vanished, t.domain.index, 0)
		g.cpus.block(t)
		return true
	}
	if t.program.period > 0 {
		t.released = t.released.Add(t.program.period)
		if t.released > g.now {
			t.began = t.released
			g.sleep(t, t.released)
			return true
		}
		t.began = t.released
	}
	return false
}

// ran is called at the end of every run.
func (g *guests) ran(t *thread) {
	d := t.domain
	d.runs = append(d.runs, run{t.began, g.now})
	if !d.spec.Background {
		g.missing--
	}
	if d.spec.Runs > 0 && len(d.runs) == d.spec.Runs {
		g.at(g.now, vanished, d.index, 0)
	}
}
