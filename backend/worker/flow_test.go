package worker

import (
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pegasus/callbuf"
	"pegasus/cuda"
)

// fullQueue is a device's queue with so much in it.
type fullQueue struct{ atomic.Int64 }

func (q *fullQueue) Queued() int { return int(q.Load()) }

// alone is a session that nobody polls, with its guest's side.
func alone(t *testing.T) (*session, *bench) {
	t.Helper()
	b := newBench(t, smallGeometry())
	b.s.end(cuda.ErrorDeinitialized, "")
	<-b.served
	s := newSession(b.h, b.s.gate, slog.New(slog.DiscardHandler))
	s.use(b.dev)
	return s, b
}

func TestRoomIsWaitedFor(t *testing.T) {
	s, _ := alone(t)
	q := &fullQueue{}
	s.queue = q
	if r := s.room(); r != cuda.Success {
		t.Fatal(r)
	}
	q.Store(maxQueued)
	synctest.Test(t, func(t *testing.T) {
		s.flow.init() // the channel belongs to the bubble
		start := time.Now()
		time.AfterFunc(time.Minute, func() {
			q.Store(maxQueued - 1)
			s.begin()
			s.ended()
		})
		if r := s.room(); r != cuda.Success || time.Since(start) < time.Minute {
			t.Errorf("%v after %v", r, time.Since(start))
		}
	})
}

func TestKeptPacketsCount(t *testing.T) {
	s, _ := alone(t)
	s.queue = &fullQueue{}
	s.flow.inline.Store(maxQueued<<10 - 1)
	if s.full() {
		t.Error("full too early")
	}
	s.flow.inline.Add(1)
	if !s.full() {
		t.Error("packets that are kept don't count")
	}
}

// Behind a callback that the guest never reports there is no use in waiting; one
// whose report is in the ring is heard.
func TestRoomBehindCallbacks(t *testing.T) {
	s, b := alone(t)
	synctest.Test(t, func(t *testing.T) { roomBehindCallbacks(t, s, b) })
}

func roomBehindCallbacks(t *testing.T, s *session, b *bench) {
	s.flow.init() // the channel belongs to the bubble
	q := &fullQueue{}
	s.queue = q
	q.Store(maxQueued)
	k, r := s.callbacks.add(5, nil)
	if r != cuda.Success {
		t.Fatal(r)
	}
	start := time.Now()
	if r := s.room(); r != cuda.ErrorOutOfMemory || time.Since(start) < roomPatience {
		t.Fatalf("%v after %v", r, time.Since(start))
	}
	start = time.Now()
	if r := s.room(); r != cuda.ErrorOutOfMemory || time.Since(start) > roomPatience/2 {
		t.Fatalf("the second time %v after %v", r, time.Since(start))
	}
	s.flow.stuck = false
	s.callbackDue(5, k, cuda.Success, func() { q.Store(0) })
	for slot, done := range []uint64{0, 5} { // is told of the callback, then reports it
		h := callbuf.Header{Op: uint16(cuda.OpCallbackWait), Flags: callbuf.FlagReply, ReplySlot: uint16(slot), ReplyTag: 1}
		if err := b.g.Send(h, payload(&cuda.CallbackWaitArgs{Done: done}), patience()); err != nil {
			t.Fatal(err)
		}
	}
	if r := s.room(); r != cuda.Success {
		t.Fatal(r)
	}
}

// What comes before a callback of a graph ends by itself, however long it takes.
func TestRoomBehindGraphs(t *testing.T) {
	s, _ := alone(t)
	synctest.Test(t, func(t *testing.T) {
		s.flow.init() // the channel belongs to the bubble
		q := &fullQueue{}
		s.queue = q
		q.Store(maxQueued)
		s.callbacks.expect(2)
		start := time.Now()
		time.AfterFunc(time.Minute, func() { q.Store(0) })
		if r := s.room(); r != cuda.Success || time.Since(start) < time.Minute {
			t.Fatalf("%v after %v", r, time.Since(start))
		}
		// Of one that is due nobody knows whether the guest will ever report it.
		q.Store(maxQueued)
		k, _ := s.callbacks.add(5, nil)
		s.callbackDue(5, k, cuda.Success, func() {})
		start = time.Now()
		if r := s.room(); r != cuda.ErrorOutOfMemory || time.Since(start) < roomPatience {
			t.Fatalf("%v after %v", r, time.Since(start))
		}
	})
}

// Callbacks that went with their context are not kept for the next to ask.
func TestCallbacksGoWithTheirContext(t *testing.T) {
	s, _ := alone(t)
	g := &guestContext{s: s}
	for id := range uint64(100) {
		k, r := s.callbacks.add(id+1, g)
		if r != cuda.Success {
			t.Fatal(r)
		}
		s.callbackDue(id+1, k, cuda.Success, func() {})
	}
	s.callbacks.drop(g)
	if n := len(s.callbacks.due); n != 0 || s.callbacks.any() {
		t.Errorf("%d are left", n)
	}
}

// Who waits while the session ends is told why it does, not that its context went with it.
func TestWaitersLearnWhySessionsEnd(t *testing.T) {
	b := newBench(t, smallGeometry())
	b.s.end(cuda.ErrorLaunchTimeout, "a kernel ran for too long")
	<-b.served
	b.s.answer(cuda.Call{ReplySlot: 3, ReplyTag: 9}, cuda.ErrorContextIsDestroyed, nil)
	at := b.g.Layout().ReplyOffset + 3*callbuf.ReplyBytes
	if r := cuda.Result(le.Uint32(b.mem[at+8:])); r != cuda.ErrorLaunchTimeout {
		t.Errorf("told %v", r)
	}
}
