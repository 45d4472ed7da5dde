package session

import (
	"pegasus/accel"
	"pegasus/cuda"
)

// textAfterAll is the flag of TextRead that waits for the context's work.
const textAfterAll = 1

// publishText publishes to the guest whether a context has text for it.
func (g *guestContext) publishText() {
	g.work.host.TextWaits(g.id, false)
	if t := g.can.Printf; t != nil {
		t.OnOutput(func(waits bool) { g.work.host.TextWaits(g.id, waits) })
	}
}

// TextRead also serves a failed context, since an assertion's message is there. It does not wait for work that may
// depend on the guest, and so on the caller.
func (h *contexts) TextRead(c cuda.Call, a cuda.TextReadArgs) (out cuda.TextReadResult, r cuda.Result) {
	g, r := h.of(c)
	if r != cuda.Success {
		return out, r
	}
	to, ok := h.host.Arena(a.ArenaOffset, a.Capacity)
	if !ok || a.Flags&^textAfterAll != 0 {
		return out, cuda.ErrorInvalidValue
	}
	t := g.can.Printf
	if t == nil {
		return out, cuda.Success
	}
	if a.Flags&textAfterAll == 0 || !t.MayPrint() || h.work.dependent() {
		return readText(t, to), cuda.Success
	}
	if r := h.work.awaitCapacity(); r != cuda.Success {
		return out, r
	}
	h.work.begin()
	g.ctx.Synchronize(func(cuda.Result) {
		text := readText(t, to)
		h.answer(c, cuda.Success, text.Append(nil))
		h.work.ended()
	})
	return out, cuda.Deferred
}

func readText(t accel.Printfer, to []byte) cuda.TextReadResult {
	n, of, left := t.ReadOutput(to)
	return cuda.TextReadResult{Length: uint64(n), Left: left, File: uint32(of)}
}
