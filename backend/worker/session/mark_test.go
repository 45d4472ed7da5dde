package session

import (
	"testing"

	"pegasus/backend/gate"
	"pegasus/backend/worker/workertest"
	"pegasus/cuda"
)

// A mark is reached when the work queued before it has ended, and the guest is notified when a call, and the mark
// behind it, wait at the gate.
func TestStreamMark(t *testing.T) {
	b := newBench(t, workertest.SmallGeometry())
	word := b.context(1)
	b.queue(cuda.OpEventCreate, 1, 0, &cuda.EventCreateArgs{Event: 5})
	mark := func(serial uint64) { b.queue(cuda.OpStreamMark, 1, 0, &cuda.StreamMarkArgs{Event: 5, Serial: serial}) }
	mark(1) // nothing is queued
	b.want(0, cuda.OpNop, 1, 0, nil)
	if n := b.g.EventSerial(5); n != 1 || b.g.Held() {
		t.Fatalf("serial %d of an idle stream, held: %v", n, b.g.Held())
	}
	b.launch(1, 0, 1, word) // waits for the test's permission
	mark(2)
	b.want(0, cuda.OpNop, 1, 0, nil)
	if n := b.g.EventSerial(5); n != 1 {
		t.Fatalf("serial %d while the stream has work", n)
	}
	b.dev.Leave <- struct{}{}
	b.until(func() bool { return b.g.EventSerial(5) == 2 })

	b.page.Revoke(gate.AllClasses)
	b.launch(1, 0, 0, word)
	mark(3)
	b.until(b.g.Held)
	if n := b.g.EventSerial(5); n != 2 {
		t.Fatalf("serial %d behind a closed gate", n)
	}
	b.page.Grant(gate.Terms{Classes: gate.AllClasses, Until: gate.Forever})
	b.until(func() bool { return b.g.EventSerial(5) == 3 && !b.g.Held() })

	// An idle stream is recognized although the device accepts no more work.
	b.queue(cuda.OpStreamCreate, 1, 0, &cuda.StreamCreateArgs{Stream: 20})
	b.queue(cuda.OpEventCreate, 1, 0, &cuda.EventCreateArgs{Event: 7})
	for range maxOutstanding {
		b.launch(1, 0, 1, word)
	}
	b.queue(cuda.OpStreamMark, 1, 20, &cuda.StreamMarkArgs{Event: 7, Serial: 1})
	b.until(func() bool { return b.g.EventSerial(7) == 1 })
	for range maxOutstanding {
		b.dev.Leave <- struct{}{}
	}
	b.want(0, cuda.OpContextSynchronize, 1, 0, nil)

	// A failed mark leaves no thread waiting.
	b.queue(cuda.OpStreamMark, 1, 0, &cuda.StreamMarkArgs{Event: 6, Serial: 9})
	b.queue(cuda.OpStreamMark, 2, 0, &cuda.StreamMarkArgs{Event: 5, Serial: 4})
	b.want(cuda.ErrorInvalidHandle, cuda.OpContextSynchronize, 1, 0, nil)
	if b.g.EventSerial(6) != 9 || b.g.EventSerial(5) != 4 {
		t.Errorf("serials %d and %d", b.g.EventSerial(6), b.g.EventSerial(5))
	}

	// A kernel's failure becomes visible to the guest no later than its end.
	ctx := b.dev.Latest()
	ctx.Fail(cuda.ErrorIllegalAddress) // not reported yet
	mark(10)
	b.until(func() bool { return b.g.EventSerial(5) == 10 })
	if r := b.g.ContextPoison(1); r != int32(cuda.ErrorIllegalAddress) {
		t.Errorf("a mark is reached, and the context's error is %d", r)
	}
}
