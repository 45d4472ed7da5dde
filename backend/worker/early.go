package worker

import (
	"slices"

	"pegasus/callbuf"
	"pegasus/cuda"
)

// early reorders calls while one waits for room: it executes a stream's write of a word ahead of its turn, since
// streams with all the queued work may be waiting for that word. Streams are ordered only by calls that name both and
// by the legacy stream, so a write may pass calls for other streams. It passes no call that is not queued in a stream,
// and no call with a reply, except calls that only wait or query.
type early struct {
	turn    uint64              // stream of the current call
	asks    bool                // the current call only waits or queries
	writes  bool                // the current call writes a word
	passed  map[uint64]struct{} // streams with a call before behind[looked]
	looked  int
	serving bool
}

// next sets the current call.
func (e *early) next(op cuda.Op, stream uint64, payload []byte) {
	e.turn, e.asks, e.writes = stream, onlyAsks(op), writesWord(op, payload)
}

func (e *early) begin() {
	e.passed, e.looked = map[uint64]struct{}{e.turn: {}}, 0
}

func (e *early) end() { e.passed = nil }

// serveEarly executes eligible writes behind the call that waits for room.
func (s *session) serveEarly() {
	e := &s.early
	if s.waits.Load() == 0 || e.turn < cuda.FirstStream && !e.asks {
		return
	}
	for ; e.looked < len(s.behind) && s.roomForWrites(); e.looked++ {
		h := &s.behind[e.looked]
		if onlyAsks(cuda.Op(h.Op)) {
			continue // calls behind it belong to another thread
		}
		if h.Stream < cuda.FirstStream || h.Flags&callbuf.FlagReply != 0 {
			return // no call passes it
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

// roomForWrites reports whether one more write may be executed although the queue is full.
func (s *session) roomForWrites() bool { return s.flow.n.Load() < maxOutstanding+maxEarly }

func writesWord(op cuda.Op, payload []byte) bool {
	if op != cuda.OpStreamValue {
		return false
	}
	var a cuda.StreamValueArgs
	return a.Decode(payload) && a.Action == writeValue
}

// onlyAsks reports whether a call only waits for or queries a result.
func onlyAsks(op cuda.Op) bool {
	switch op {
	case cuda.OpContextSynchronize, cuda.OpStreamSynchronize, cuda.OpEventSynchronize, cuda.OpStreamQuery, cuda.OpEventElapsed, cuda.OpMemInfo:
		return true
	}
	return false
}
