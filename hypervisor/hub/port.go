package hub

import (
	"context"

	"pegasus/callbuf"
	"pegasus/callbuf/bell"
	wire "pegasus/callbuf/region"
)

// listen lets the agent and the hub wake each other, if the machine has a port.
func (h Hub) listen(ctx context.Context) *bell.Port {
	open, reopen := h.Memory.Port()
	return bell.Listen(ctx, open, reopen, func(err error) {
		if err != nil {
			h.Log.Info("nothing wakes the hub: it looks every few milliseconds", "why", err)
		} else {
			h.Log.Info("the machine has a port that wakes")
		}
	})
}

// words returns the doorbell words of the control area, if there is one.
func (s *session) words() bell.Words {
	if s.control == nil {
		return nil
	}
	return s.control
}

// features returns the features of a process's segment beside callbuf.FeatureApart: those common to the process, its
// worker and its agent.
func (s *session) features(p *process, terms uint64) uint64 {
	if !s.port.Live() || s.control == nil || s.control.Bell() == wire.NoBell {
		return 0
	}
	if p.hello.Features&terms&callbuf.FeatureBell == 0 {
		return 0
	}
	if !s.hub.Memory.Rouses() {
		terms &^= callbuf.FeatureRouse
	}
	return callbuf.FeatureBell | callbuf.FeatureRouse&terms
}

// rouse wakes the workers of the guests that have rung. The port doesn't identify the guest; the flag in its segment
// does. A worker that sleeps elsewhere gets a message.
func (s *session) rouse() {
	for _, p := range s.processes {
		switch {
		case p.header == nil:
		case p.features&callbuf.FeatureRouse != 0:
			callbuf.Rouse(p.header)
		case p.features&callbuf.FeatureBell != 0 && !callbuf.Parked(p.header):
			p.pass(ring)
		}
	}
}

// ring is a process's message to its worker when there is a packet.
var ring = []byte{0}
