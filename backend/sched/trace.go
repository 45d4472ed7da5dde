package sched

import (
	"pegasus/backend/control"
	"pegasus/policies"
	"pegasus/vcpu"
)

// Record passes to recorder every event and decision of the scheduler, which restarts with the same policy; a nil
// recorder ends the recording. It fails while another recording is active.
func (a *Accelerator) Record(recorder func(policies.Record)) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if recorder != nil && a.recorder != nil {
		return control.Errorf(control.CodeConflict, "accelerator %q is being traced already", a.Name)
	}
	if recorder != nil {
		recorder = a.named(recorder)
	}
	a.recorder = recorder
	err := a.sched.Record(vcpu.Time(a.now()), Choice(a.settings), recorder)
	a.Bell.Ring()
	return err
}

// named returns a recorder that adds to attach events the domain's name, which the scheduler does not have. The caller
// holds a.mu when it calls either recorder.
func (a *Accelerator) named(recorder func(policies.Record)) func(policies.Record) {
	return func(r policies.Record) {
		if e := r.Event; e != nil && e.Kind == policies.Attach {
			for name, id := range a.ids {
				if id == e.Domain.ID {
					r.Name = name
				}
			}
		}
		recorder(r)
	}
}
