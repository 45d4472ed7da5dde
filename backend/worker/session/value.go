package session

import (
	"pegasus/accel"
	"pegasus/cuda"
)

// writeValue is the action of StreamValue that writes; lower values are conditions.
const writeValue = 16

// StreamValue needs no admission at the gate, like events: a word takes a negligible time of an engine.
func (h *streams) StreamValue(c cuda.Call, a cuda.StreamValueArgs) cuda.Result {
	g, st, r := h.forWork(c)
	if r != cuda.Success {
		return r
	}
	words := h.can.StreamWords
	switch {
	case a.Bytes != 4 && a.Bytes != 8, a.Address%uint64(a.Bytes) != 0:
		return cuda.ErrorInvalidValue
	case int(a.Bytes)*8 > words.Bits, accel.Condition(a.Action) == accel.NorBit && !words.Nor:
		return cuda.ErrorNotSupported
	}
	var w accel.Work
	switch {
	case a.Action == writeValue:
		w = accel.WriteValue{Address: a.Address, Value: a.Value, Bytes: a.Bytes}
	case accel.Condition(a.Action) <= accel.NorBit:
		w = accel.WaitValue{Address: a.Address, Value: a.Value, Bytes: a.Bytes, Condition: accel.Condition(a.Action)}
	default:
		return cuda.ErrorInvalidValue
	}
	if a.Action == writeValue {
		return h.work.submit(g, st, w, g.ended)
	}
	h.work.waits.Add(1)
	r = h.work.submit(g, st, w, func(r cuda.Result, u accel.Usage) {
		h.work.waits.Add(-1)
		g.end(r, u)
	})
	if r != cuda.Success {
		h.work.waits.Add(-1)
	}
	return r
}
