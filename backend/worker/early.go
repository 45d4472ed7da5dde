package worker

import (
	"slices"

	"pegasus/callbuf"
	"pegasus/cuda"
)

// early finds what may be carried out before its turn while a call waits for room: that
// streams write a word, which others may be waiting for with all that fills the queue.
// Between streams there is no order but what calls for both of them make, and for the legacy
// stream, so a write may pass what was called for other streams. It doesn't pass any
// call that isn't queued in a stream, nor one that somebody waits for; but those that only wait or ask.
type early struct {
	turn    uint64              // the stream of the call whose turn it is
	asks    bool                // that only waits or asks
	writes  bool                // or writes a word itself
	passed  map[uint64]struct{} // streams that have something before behind[looked]
	looked  int
	serving bool
}

// next is the call whose turn it is.
func (e *early) next(op cuda.Op, stream uint64, payload []byte) {
	e.turn, e.asks, e.writes = stream, onlyAsks(op), writesWord(op, payload)
}

func (e *early) begin() {
	e.passed, e.looked = map[uint64]struct{}{e.turn: {}}, 0
}

func (e *early) end() { e.passed = nil }

// serveEarly carries out what is found behind the call that waits for room.
func (s *session) serveEarly() {
	e := &s.early
	if s.waits.Load() == 0 || e.turn < cuda.FirstStream && !e.asks {
		return
	}
	for ; e.looked < len(s.behind) && s.roomForWrites(); e.looked++ {
		h := &s.behind[e.looked]
		if onlyAsks(cuda.Op(h.Op)) {
			continue // what comes behind it is another thread's
		}
		if h.Stream < cuda.FirstStream || h.Flags&callbuf.FlagReply != 0 {
			return // nothing passes it
		}
		if _, passed := e.passed[h.Stream]; passed || !writesWord(cuda.Op(h.Op), h.payload) {
			e.passed[h.Stream] = struct{}{}
			continue
		}
		first := *h
		s.behind = slices.Delete(s.behind, e.looked, e.looked+1)
		s.behindBytes -= len(first.payload)
		e.looked--
		e.serving = true
		s.serve(first.Header, first.payload)
		e.serving = false
	}
}

// roomForWrites says whether one more write may be carried out though all is full.
func (s *session) roomForWrites() bool { return s.flow.n.Load() < maxOutstanding+maxEarly }

func writesWord(op cuda.Op, payload []byte) bool {
	if op != cuda.OpStreamValue {
		return false
	}
	var a cuda.StreamValueArgs
	return a.Decode(payload) && a.Action == writeValue
}

// onlyAsks says whether a call does nothing but wait for an answer.
func onlyAsks(op cuda.Op) bool {
	switch op {
	case cuda.OpContextSynchronize, cuda.OpStreamSynchronize, cuda.OpEventSynchronize, cuda.OpStreamQuery, cuda.OpEventElapsed, cuda.OpMemInfo:
		return true
	}
	return false
}
