package session

import (
	"testing"

	"pegasus/backend/worker/workertest"
	"pegasus/callbuf"
	"pegasus/cuda"
)

func BenchmarkLaunches(b *testing.B) {
	s := newBench(b, workertest.SmallGeometry())
	word := s.context(1)
	for b.Loop() {
		s.launch(1, 0, 0, word)
	}
	s.want(0, cuda.OpContextSynchronize, 1, 0, nil)
}

func BenchmarkQueuedHere(b *testing.B) {
	s := newBench(b, callbuf.Geometry{RingSlots: 4096, ReplySlots: 64, EventWords: 64, ReleaseWords: 16, ArenaBytes: 1 << 20})
	alive := func() error { return nil }
	h := callbuf.Header{Op: uint16(cuda.OpNop)}
	for b.Loop() {
		s.g.Send(h, nil, alive)
	}
	s.want(0, cuda.OpNop, 0, 0, nil)
}
