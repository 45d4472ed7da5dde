package backend

import (
	"pegasus/backend/gate"
	"pegasus/policies"
)

// pause closes a domain's gate until it is called with false: what is submitted drains,
// and what waits is nobody's wish meanwhile, so that the policy gives the time to others.
// Whoever has it stays in its place with all that it has.
func (a *accelerator) pause(m *avcpu, yes bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if m.paused == yes {
		return
	}
	m.paused = yes
	if yes {
		m.page.Revoke(gate.AllClasses)
		a.turnOf(m)
	} else {
		a.unpause(gate.Now(), m)
	}
	a.bell.Ring()
}

// unpause opens the gate for the leases that are still out: the pause was short.
func (a *accelerator) unpause(now int64, m *avcpu) {
	if m.withdrawn {
		m.withdrawn = false
		a.wake(now, 0, m, policies.ContextOpened)
	}
	a.turnOf(m)
	for c, t := range m.terms {
		if classes(policies.Class(c))&m.leases != 0 && t != (gate.Terms{}) {
			m.page.Grant(t)
		}
	}
	m.page.Watch()
}

// stopped is what a paused domain's workers do, without what they wish, such as to go on with what they have begun.
func stopped(w gate.Work) gate.Work {
	w.Pending, w.Arrived = 0, false
	for c, n := range w.Held {
		w.Flying[c] -= n
		w.InFlight -= n
	}
	w.Heads = [gate.NumClasses]gate.Head{}
	return w
}

// withdraw tells the scheduler that a paused domain needs no turn, when all that it had
// submitted has drained.
func (a *accelerator) withdraw(now int64, m *avcpu, w gate.Work) {
	if m.paused && !m.withdrawn && !w.Busy() {
		m.withdrawn = true
		a.wake(now, 0, m, policies.ContextClosed)
	}
}
