package worker

import (
	"pegasus/accel"
	"pegasus/cuda"
)

// textAfterAll is the flag of TextRead that waits for the context's work.
const textAfterAll = 1

// hear publishes to the guest whether a context has text for it.
func (g *guestContext) hear() {
	g.s.host.TextWaits(g.id, false)
	if t := g.can.Printf; t != nil {
		t.OnOutput(func(waits bool) { g.s.host.TextWaits(g.id, waits) })
	}
}

// TextRead also serves a failed context, since an assertion's message is there. It does not wait for work that may
// depend on the guest, and so on the caller.
func (s *session) TextRead(c cuda.Call, a cuda.TextReadArgs) (out cuda.TextReadResult, r cuda.Result) {
	g, r := s.context(c)
	if r != cuda.Success {
		return out, r
	}
	to, ok := s.host.Arena(a.ArenaOffset, a.Capacity)
	if !ok || a.Flags&^textAfterAll != 0 {
		return out, cuda.ErrorInvalidValue
	}
	t := g.can.Printf
	if t == nil {
		return out, cuda.Success
	}
	if a.Flags&textAfterAll == 0 || !t.MayPrint() || s.dependent() {
		return readText(t, to), cuda.Success
	}
	if r := s.room(); r != cuda.Success {
		return out, r
	}
	s.begin()
	g.ctx.Synchronize(func(cuda.Result) {
		text := readText(t, to)
		s.answer(c, cuda.Success, text.Append(nil))
		s.ended()
	})
	return out, cuda.Deferred
}

func readText(t accel.Printfer, to []byte) cuda.TextReadResult {
	n, of, left := t.ReadOutput(to)
	return cuda.TextReadResult{Length: uint64(n), Left: left, File: uint32(of)}
}

// Actions of Profile.
const (
	profileBegin  = 1
	profileReport = 2
)

func (s *session) Profile(_ cuda.Call, a cuda.ProfileArgs) (out cuda.ProfileResult, r cuda.Result) {
	to, ok := s.host.Arena(a.ArenaOffset, a.Capacity)
	if !ok {
		return out, cuda.ErrorInvalidValue
	}
	p := s.can.Diagnostics
	if p == nil {
		return out, cuda.ErrorNotSupported
	}
	switch a.Action {
	case profileBegin:
		p.Profile()
	case profileReport:
		out.Length = uint64(copy(to, p.Report()))
	default:
		return out, cuda.ErrorInvalidValue
	}
	return out, cuda.Success
}

// Flags of Check.
const (
	checkBounds = 1 << iota
	checkOrder
)

func (s *session) Check(_ cuda.Call, a cuda.CheckArgs) cuda.Result {
	if a.Checks == 0 || a.Checks&^(checkBounds|checkOrder) != 0 {
		return cuda.ErrorInvalidValue
	}
	c := s.can.Diagnostics
	if c == nil {
		return cuda.ErrorNotSupported
	}
	c.Check(accel.Checks{Bounds: a.Checks&checkBounds != 0, Order: a.Checks&checkOrder != 0, Seed: a.Seed})
	return cuda.Success
}
