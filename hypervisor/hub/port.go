package hub

import (
	"context"

	"pegasus/callbuf"
	"pegasus/callbuf/bell"
	wire "pegasus/callbuf/region"
)

// listen has the agent wake the hub, if the machine has a port, and the other way round.
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

// words are those of the control area, if there is one.
func (s *session) words() bell.Words {
	if s.control == nil {
		return nil
	}
	return s.control
}

// features are those that a process's segment has beside callbuf.FeatureApart: what it,
// its worker and its agent know to do.
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

// rouse wakes the workers whose guests have rung. That a guest has is in its segment; whose it was
// the port doesn't say. A worker that sleeps elsewhere is sent a message.
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

// ring is what a process says to its worker when there is a packet.
var ring = []byte{0}
