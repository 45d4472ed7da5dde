package sim

import "pegasus/policies"

// Trace is what happened when, for people to look at.
type Trace struct{}

func (s *Sim) traceCPU(*pcpu, *thread)                 {}
func (s *Sim) traceRequest(*engine, *request)          {}
func (s *Sim) traceGate(*domain, policies.Class, bool) {}

type Recording struct{}

func (r *Recording) step(Time, policies.Event)     {}
func (r *Recording) ready(Time, []policies.Action) {}
