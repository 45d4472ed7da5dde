package sched

import (
	"pegasus/backend/gate"
	"pegasus/policies"
)

// Pause closes a domain's gate until it is called with false. Submitted work drains, and waiting requests are hidden
// from the policy meanwhile, so that it gives the time to other domains. The domain stays on its accelerator with all
// its memory.
func (a *Accelerator) Pause(m *Attachment, yes bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if m.paused == yes {
		return
	}
	m.paused = yes
	if yes {
		m.Page.Revoke(gate.AllClasses)
		m.setTurn(a.settings.KernelTimeout)
	} else {
		a.unpause(a.now(), m)
	}
	a.Bell.Ring()
}

// unpause opens the gate for the leases that are still in force after a short pause. a.mu is held.
func (a *Accelerator) unpause(now int64, m *Attachment) {
	if m.withdrawn {
		m.withdrawn = false
		a.wake(now, 0, m, policies.ContextOpened)
	}
	m.setTurn(a.settings.KernelTimeout)
	for c, t := range m.terms {
		if classes(policies.Class(c))&m.leases != 0 && t != (gate.Terms{}) {
			m.Page.Grant(t)
		}
	}
	m.Page.Watch()
}

// stopped returns a paused domain's work without the parts that need a turn, such as preempted work that would resume.
func stopped(w gate.Work) gate.Work {
	w.Pending, w.Arrived = 0, false
	for c, n := range w.Held {
		w.Flying[c] -= n
		w.InFlight -= n
	}
	w.Heads = [gate.NumClasses]gate.Head{}
	return w
}

// withdraw notifies the scheduler that a paused domain needs no turn, once its submitted work has drained. a.mu is
// held.
func (a *Accelerator) withdraw(now int64, m *Attachment, w gate.Work) {
	if m.paused && !m.withdrawn && !w.Busy() {
		m.withdrawn = true
		a.wake(now, 0, m, policies.ContextClosed)
	}
}
