package session

import (
	"pegasus/callbuf"
	"pegasus/cuda"
)

// reorder reorders calls while one waits for capacity: it executes a stream's write of a word ahead of its turn, since
// streams with all the queued work may be waiting for that word. Streams are ordered only by calls that name both and
// by the legacy stream, so a write may pass calls for other streams. It passes no call that is not queued in a stream,
// and no call with a reply, except calls that only wait or query.
type reorder struct {
	op      cuda.Op             // of the current call
	stream  uint64              // of the current call
	writes  bool                // the current call writes a word
	passed  map[uint64]struct{} // streams with a call among the first scanned deferred packets
	scanned int
	serving bool // the current call has passed others
}

// next sets the current call.
func (e *reorder) next(op cuda.Op, stream uint64, payload []byte) {
	e.op, e.stream, e.writes = op, stream, op == cuda.OpStreamValue && writesWord(op, payload)
}

// begin starts the wait of the current call for capacity, and end ends it.
func (e *reorder) begin() {
	e.passed, e.scanned = map[uint64]struct{}{e.stream: {}}, 0
}

func (e *reorder) end() { e.passed = nil }

// serveReordered executes eligible writes behind the call that waits for capacity.
func (p *poller) serveReordered() {
	e, l := &p.reorder, &p.lookahead
	if p.work.waits.Load() == 0 || e.stream < cuda.FirstStream && !onlyWaits(e.op) {
		return
	}
	for ; e.scanned < len(l.deferred) && p.work.capacityForWrites(); e.scanned++ {
		h := &l.deferred[e.scanned]
		if onlyWaits(cuda.Op(h.Op)) {
			continue // calls behind it belong to another thread
		}
		if h.Stream < cuda.FirstStream || h.Flags&callbuf.FlagReply != 0 {
			return // no call passes it
		}
		if _, passed := e.passed[h.Stream]; passed || !writesWord(cuda.Op(h.Op), h.payload) {
			e.passed[h.Stream] = struct{}{}
			continue
		}
		packet := l.take(e.scanned)
		e.scanned--
		e.serving = true
		p.serve(packet.Header, packet.payload)
		e.serving = false
	}
}

// writesWord reports whether a call is a stream's write of a word.
func writesWord(op cuda.Op, payload []byte) bool {
	if op != cuda.OpStreamValue {
		return false
	}
	var a cuda.StreamValueArgs
	return a.Decode(payload) && a.Action == writeValue
}

// onlyWaits reports whether a call only waits for or queries a result.
func onlyWaits(op cuda.Op) bool {
	switch op {
	case cuda.OpContextSynchronize, cuda.OpStreamSynchronize, cuda.OpEventSynchronize, cuda.OpStreamQuery, cuda.OpEventElapsed, cuda.OpMemInfo:
		return true
	}
	return false
}
