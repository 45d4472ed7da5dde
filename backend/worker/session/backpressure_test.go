package session

import (
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pegasus/backend/worker/workertest"
	"pegasus/callbuf"
	"pegasus/cuda"
)

// fullQueue is a device's queue with that many entries.
type fullQueue struct{ atomic.Int64 }

func (q *fullQueue) Queued() int { return int(q.Load()) }

// alone returns a session without a poller, with its guest's side.
func alone(t *testing.T) (*Session, *bench) {
	t.Helper()
	b := newBench(t, workertest.SmallGeometry())
	b.s.end(cuda.ErrorDeinitialized, "")
	<-b.served
	s := New(b.h, b.s.gate, 0, slog.New(slog.DiscardHandler))
	s.Use(b.dev)
	return s, b
}

func TestRoomIsWaitedFor(t *testing.T) {
	s, _ := alone(t)
	q := &fullQueue{}
	s.work.queue = q
	if r := s.work.awaitCapacity(); r != cuda.Success {
		t.Fatal(r)
	}
	q.Store(maxQueued)
	synctest.Test(t, func(t *testing.T) {
		s.work.load.init() // the channel belongs to the bubble
		start := time.Now()
		time.AfterFunc(time.Minute, func() {
			q.Store(maxQueued - 1)
			s.work.begin()
			s.work.ended()
		})
		if r := s.work.awaitCapacity(); r != cuda.Success || time.Since(start) < time.Minute {
			t.Errorf("%v after %v", r, time.Since(start))
		}
	})
}

func TestKeptPacketsCount(t *testing.T) {
	s, _ := alone(t)
	s.work.queue = &fullQueue{}
	s.work.load.kept.Store(maxQueued<<10 - 1)
	if s.work.full() {
		t.Error("full too early")
	}
	s.work.load.kept.Add(1)
	if !s.work.full() {
		t.Error("packets that are kept don't count")
	}
}

// A callback may take long; its report makes room, in the ring or beside it.
func TestRoomBehindCallbacks(t *testing.T) {
	for _, beside := range []bool{false, true} {
		s, b := alone(t)
		synctest.Test(t, func(t *testing.T) { roomBehindCallbacks(t, s, b, beside) })
	}
}

func roomBehindCallbacks(t *testing.T, s *Session, b *bench, beside bool) {
	s.work.load.init() // the channel belongs to the bubble
	q := &fullQueue{}
	s.work.queue = q
	q.Store(maxQueued)
	k, r := s.calls.callbacks.add(5, nil)
	if r != cuda.Success {
		t.Fatal(r)
	}
	if beside { // the ring is not read any more
		s.poller.lookahead.bytes = maxDeferredBytes
	}
	send := func(slot uint16, done uint64) {
		h := callbuf.Header{Op: uint16(cuda.OpCallbackWait), Flags: callbuf.FlagReply, ReplySlot: slot, ReplyTag: 1}
		var err error
		if p := workertest.Payload(&cuda.CallbackWaitArgs{Done: done}); beside {
			err = b.g.SendBeside(h, p)
		} else {
			err = b.g.Send(h, p, workertest.Patience())
		}
		if err != nil {
			t.Error(err)
		}
	}
	s.calls.callbacks.deliver(5, k, cuda.Success, func() { q.Store(0) })
	start := time.Now()
	time.AfterFunc(time.Second, func() { send(0, 0) }) // receives the callback
	time.AfterFunc(time.Minute, func() { send(1, 5) }) // has run it
	if r := s.work.awaitCapacity(); r != cuda.Success || time.Since(start) < time.Minute {
		t.Fatalf("%v after %v", r, time.Since(start))
	}
}

// A session also ends while a call waits for a callback.
func TestRoomEndsWithTheSession(t *testing.T) {
	s, _ := alone(t)
	synctest.Test(t, func(t *testing.T) {
		s.work.load.init()
		q := &fullQueue{}
		s.work.queue = q
		q.Store(maxQueued)
		if _, r := s.calls.callbacks.add(5, nil); r != cuda.Success {
			t.Fatal(r)
		}
		start := time.Now()
		time.AfterFunc(time.Minute, func() { s.end(cuda.ErrorDeinitialized, "") })
		if r := s.work.awaitCapacity(); r != cuda.ErrorDeinitialized || time.Since(start) > time.Minute+time.Second {
			t.Errorf("%v after %v", r, time.Since(start))
		}
	})
}

// A guest that uses only the ring, and has filled it and the deferred packets, cannot report anything.
func TestRoomForTheDeaf(t *testing.T) {
	s, _ := alone(t)
	synctest.Test(t, func(t *testing.T) {
		s.work.load.init()
		q := &fullQueue{}
		s.work.queue = q
		q.Store(maxQueued)
		if _, r := s.calls.callbacks.add(5, nil); r != cuda.Success {
			t.Fatal(r)
		}
		s.poller.lookahead.bytes = maxDeferredBytes
		for _, least := range []time.Duration{capacityPatience, 0} {
			start := time.Now()
			if r := s.work.awaitCapacity(); r != cuda.ErrorOutOfMemory || time.Since(start) < least || time.Since(start) > least+capacityPatience/2 {
				t.Fatalf("%v after %v", r, time.Since(start))
			}
		}
		q.Store(0)
		if r := s.work.awaitCapacity(); r != cuda.Success {
			t.Fatal(r)
		}
	})
}

// Only reports are accepted beside the ring.
func TestCallsBesideTheRing(t *testing.T) {
	b := newBench(t, workertest.SmallGeometry())
	if err := b.g.SendBeside(callbuf.Header{Op: uint16(cuda.OpNop)}, nil); err != nil {
		t.Fatal(err)
	}
	<-b.served
	if b.s.ending.result != cuda.ErrorLaunchFailed {
		t.Errorf("it ended with %v", b.s.ending.result)
	}
}

// Work before a callback of a graph completes on its own, however long it takes.
func TestRoomBehindGraphs(t *testing.T) {
	s, _ := alone(t)
	synctest.Test(t, func(t *testing.T) {
		s.work.load.init() // the channel belongs to the bubble
		q := &fullQueue{}
		s.work.queue = q
		q.Store(maxQueued)
		s.calls.callbacks.expect(2)
		start := time.Now()
		time.AfterFunc(time.Minute, func() { q.Store(0) })
		if r := s.work.awaitCapacity(); r != cuda.Success || time.Since(start) < time.Minute {
			t.Fatalf("%v after %v", r, time.Since(start))
		}
	})
}

// Callbacks of a destroyed context are not kept for the next CallbackWait.
func TestCallbacksGoWithTheirContext(t *testing.T) {
	s, _ := alone(t)
	g := &guestContext{work: &s.work}
	for id := range uint64(100) {
		k, r := s.calls.callbacks.add(id+1, g)
		if r != cuda.Success {
			t.Fatal(r)
		}
		s.calls.callbacks.deliver(id+1, k, cuda.Success, func() {})
	}
	s.calls.callbacks.dropContext(g)
	if n := len(s.calls.callbacks.due); n != 0 || s.calls.callbacks.any() {
		t.Errorf("%d are left", n)
	}
}

// A call that waits while the session ends returns the session's result, and not that its context was destroyed.
func TestWaitersLearnWhySessionsEnd(t *testing.T) {
	b := newBench(t, workertest.SmallGeometry())
	b.s.end(cuda.ErrorLaunchTimeout, "a kernel ran for too long")
	<-b.served
	b.s.answer(cuda.Call{ReplySlot: 3, ReplyTag: 9}, cuda.ErrorContextIsDestroyed, nil)
	at := b.g.Layout().ReplyOffset + 3*callbuf.ReplyBytes
	if r := cuda.Result(le.Uint32(b.mem[at+8:])); r != cuda.ErrorLaunchTimeout {
		t.Errorf("told %v", r)
	}
}

// A write for which streams may be waiting passes the work queued in other streams, and nothing else.
func TestWritesPassOtherStreams(t *testing.T) {
	call := func(op cuda.Op, stream uint64, a interface{ Append([]byte) []byte }, flags uint16) deferredPacket {
		h := deferredPacket{Header: callbuf.Header{Op: uint16(op), Stream: stream, Context: 1, Flags: flags}}
		if a != nil {
			h.payload = a.Append(nil)
		}
		return h
	}
	launch := func(stream uint64) deferredPacket { return call(cuda.OpLaunch, stream, &cuda.LaunchArgs{}, 0) }
	value := func(stream uint64, action uint32) deferredPacket {
		return call(cuda.OpStreamValue, stream, &cuda.StreamValueArgs{Bytes: 4, Action: action}, 0)
	}
	const a, b, c = cuda.FirstStream, cuda.FirstStream + 1, cuda.FirstStream + 2
	free := call(cuda.OpMemFree, 0, &cuda.MemFreeArgs{}, 0)
	synchronize := call(cuda.OpStreamSynchronize, c, nil, callbuf.FlagReply)
	alloc := call(cuda.OpMemAlloc, 0, &cuda.MemAllocArgs{}, callbuf.FlagReply)
	legacy := launch(cuda.StreamLegacy)
	for name, x := range map[string]struct {
		turn   uint64
		behind []deferredPacket
		full   int64
		left   int
	}{
		"behind launches":             {a, []deferredPacket{launch(a), launch(a), value(b, writeValue)}, 0, 2},
		"several":                     {a, []deferredPacket{launch(a), value(b, writeValue), launch(a), value(b, writeValue), value(c, writeValue)}, 0, 2},
		"behind its own stream's":     {a, []deferredPacket{launch(b), value(b, writeValue)}, 0, 2},
		"in the stream that waits":    {a, []deferredPacket{value(a, writeValue)}, 0, 1},
		"behind a wait of its own":    {a, []deferredPacket{value(b, 0), value(b, writeValue)}, 0, 2},
		"behind what frees memory":    {a, []deferredPacket{free, value(b, writeValue)}, 0, 2},
		"behind what is waited for":   {a, []deferredPacket{alloc, value(b, writeValue)}, 0, 2},
		"behind what only waits":      {a, []deferredPacket{synchronize, value(b, writeValue)}, 0, 1},
		"behind the legacy stream's":  {a, []deferredPacket{legacy, value(b, writeValue)}, 0, 2},
		"where that has its turn":     {cuda.StreamLegacy, []deferredPacket{value(b, writeValue)}, 0, 1},
		"where no stream has it":      {0, []deferredPacket{value(b, writeValue)}, 0, 1},
		"in the legacy stream":        {a, []deferredPacket{value(cuda.StreamLegacy, writeValue)}, 0, 1},
		"where many did":              {a, []deferredPacket{value(b, writeValue)}, maxOutstanding + maxReordered, 1},
		"where all is full otherwise": {a, []deferredPacket{value(b, writeValue)}, maxOutstanding, 0},
		"malformed":                   {a, []deferredPacket{{Header: callbuf.Header{Op: uint16(cuda.OpStreamValue), Stream: b}}}, 0, 1},
	} {
		s, _ := alone(t)
		s.work.waits.Store(1)
		s.work.load.outstanding.Store(x.full)
		s.poller.lookahead.deferred = x.behind
		for _, h := range x.behind {
			s.poller.lookahead.bytes += len(h.payload)
		}
		s.poller.reorder.stream = x.turn
		s.poller.reorder.begin()
		s.poller.serveReordered()
		s.poller.serveReordered()
		if len(s.poller.lookahead.deferred) != x.left {
			t.Errorf("%s: %d are left, want %d", name, len(s.poller.lookahead.deferred), x.left)
		}
	}
}
