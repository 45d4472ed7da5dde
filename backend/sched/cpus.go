package sched

import (
	"pegasus/policies"
	"pegasus/policies/boost"
	"pegasus/vcpu"
)

// Contended reports whether several domains had work for the accelerator when it was last sampled; otherwise its policy
// has nothing to decide.
func (a *Accelerator) Contended() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.members.rivals()
}

// rivals reports whether several domains had work when they were last sampled.
func (l members) rivals() bool {
	busy := 0
	for _, m := range l {
		if m.busy {
			busy++
		}
	}
	return busy > 1
}

// Observe passes a sample to the policy, with the blocked vCPUs of domains that have work marked as blocked on the
// accelerator.
func (a *Accelerator) Observe(s *vcpu.Sample) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range s.Domains {
		at, ok := a.members.find(s.Domains[i].ID)
		if !ok || !a.members[at].busy {
			continue
		}
		for n := range s.Domains[i].VCPUs {
			if v := &s.Domains[i].VCPUs[n]; v.State == vcpu.Blocked {
				v.State = vcpu.BlockedOnAccelerator
			}
		}
	}
	a.step(a.now(), policies.Event{Kind: policies.Observe, Sample: s})
}

// reportWindow reports a decision's effect on a machine's CPUs. a.mu is held.
func (a *Accelerator) reportWindow(now int64, m *Attachment, act policies.Action) {
	if until := boost.Window(vcpu.Time(now), &act); until != m.window {
		m.window = until
		a.follow(m.Domain, until)
	}
}
