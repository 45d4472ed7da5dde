package session

import (
	"testing"
	"time"

	"pegasus/backend/worker/workertest"
	"pegasus/cuda"
)

// While a call waits for a handling slot, its packet doesn't count as taken: the guest would look for its effects, and
// a query of an idle stream would report pending work.
func TestCallInHandIsNotTaken(t *testing.T) {
	b := newBench(t, workertest.SmallGeometry())
	b.page.SetHandlers(1)
	b.context(1)
	b.queue(cuda.OpEventCreate, 1, 0, &cuda.EventCreateArgs{Event: 5})
	b.want(0, cuda.OpContextSynchronize, 1, 0, nil)
	other := b.sibling()
	b.until(other.MayHandle)
	time.Sleep(time.Millisecond)
	head := func() uint32 { return le.Uint32(b.mem[0x100:]) }
	before := head()
	b.queue(cuda.OpStreamMark, 1, 0, &cuda.StreamMarkArgs{Event: 5, Serial: 1})
	b.until(func() bool { return other.Others() || b.g.EventSerial(5) == 1 })
	if head() != before && b.g.EventSerial(5) != 1 { // in this order
		t.Error("the mark counts as taken before it was handled")
	}
	other.Rest()
	b.until(func() bool { return b.g.EventSerial(5) == 1 })
}
