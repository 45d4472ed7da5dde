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
// call that isn't queued in a stream, nor one that somebody waits for.
type early struct {
	turn    uint64              // the stream of the call whose turn it is
	passed  map[uint64]struct{} // streams that have something before behind[looked]
	looked  int
	serving bool
}

func (e *early) begin() {
	e.passed, e.looked = map[uint64]struct{}{e.turn: {}}, 0
}

func (e *early) end() { e.passed = nil }

// serveEarly carries out what is found behind the call that waits for room.
func (s *session) serveEarly() {
	e := &s.early
	if s.waits.Load() == 0 || e.turn < cuda.FirstStream {
		return
	}
	for ; e.looked < len(s.behind) && s.flow.n.Load() < maxOutstanding+maxEarly; e.looked++ {
		h := &s.behind[e.looked]
		if h.Stream < cuda.FirstStream || h.Flags&callbuf.FlagReply != 0 {
			return // nothing passes it
		}
		if _, passed := e.passed[h.Stream]; passed || !writesWord(h) {
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

func writesWord(h *held) bool {
	if cuda.Op(h.Op) != cuda.OpStreamValue {
		return false
	}
	var a cuda.StreamValueArgs
	return a.Decode(h.payload) && a.Action == writeValue
}
