package test

import (
	"encoding/binary"
	"testing"

	"pegasus/cuda"
)

// A guest in Go has streams that wait for each other's events, and its resources are released when it ends.
func TestStreamsOfGoGuest(t *testing.T) {
	h := startHost(t, hostileDomains)
	l := load(t, h.dial("good"))
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	const nonBlocking = 1 // CU_STREAM_NON_BLOCKING
	first, err := l.NewStream(nonBlocking)
	must(err)
	second, err := l.NewStream(nonBlocking)
	must(err)
	event, err := l.NewEvent(0)
	must(err)
	at, err := l.Alloc(4)
	must(err)
	count, err := l.Function("count")
	must(err)

	const rounds = 20_000_000
	params := binary.LittleEndian.AppendUint32(le64(at), rounds)
	one := [3]uint32{1, 1, 1}
	must(l.Launch(first, count, one, one, 0, params)) // stores its count at its end
	must(l.Record(first, event, 1))
	must(l.WaitEvent(second, event))
	must(l.SynchronizeStream(second))
	b := make([]byte, 4)
	must(l.CopyOut(b, at)) // in the default stream, which waits for neither
	if n := binary.LittleEndian.Uint32(b); n != rounds {
		t.Errorf("the second stream didn't wait for the first, which has counted to %d of %d", n, rounds)
	}

	must(l.DestroyStream(first))
	must(l.DestroyStream(second))
	must(l.Unload())
	l.Launch(0, count, one, one, 0, params) // its error is reported at the next call that waits
	wantResult(t, l.Synchronize(), cuda.ErrorInvalidHandle)
}
