package sched

import (
	"pegasus/backend/control"
	"pegasus/backend/gate"
	"pegasus/policies"
)

// windowNames are the display names of a lease's classes.
var windowNames = [1 + gate.NumClasses]string{policies.AnyClass: "all", policies.Compute: "compute", policies.Copy: "copy"}

// Watch passes every window in which a gate was open to report; nil ends that.
func (a *Accelerator) Watch(report func(control.Span)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.windows = report
	now := a.now()
	for _, m := range a.members {
		for c := range m.since {
			m.since[c] = 0
			if m.leases&classes(policies.Class(c)) != 0 && m.terms[c] != (gate.Terms{}) {
				m.since[c] = now
			}
		}
	}
}

// ReportWindows reports the open windows, up to now.
func (a *Accelerator) ReportWindows() {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	for _, m := range a.members {
		for c := range m.since {
			if a.window(now, m, policies.Class(c)); m.since[c] != 0 {
				m.since[c] = now
			}
		}
	}
}

// window reports a domain's window, up to now. a.mu is held.
func (a *Accelerator) window(now int64, m *Attachment, c policies.Class) {
	if since := m.since[c]; a.windows != nil && since != 0 && since < now {
		a.windows(control.Span{Line: control.LineGate, Accelerator: a.Name, Domain: m.Domain, Class: windowNames[c], From: since, To: now})
	}
}
