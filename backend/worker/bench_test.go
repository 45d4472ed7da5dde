package worker

import (
	"slices"
	"testing"
	"time"

	"pegasus/callbuf"
	"pegasus/cuda"
)

// roundTrips measures n null calls with a pause before each.
func roundTrips(b *testing.B, e *employed, pause time.Duration) {
	var out [callbuf.MaxReplyData]byte
	alive := func() error { return nil }
	times := make([]time.Duration, 0, b.N)
	h := callbuf.Header{Op: uint16(cuda.OpNop)}
	for b.Loop() {
		if pause > 0 {
			time.Sleep(pause)
		}
		start := time.Now()
		e.g.Call(h, nil, out[:0], alive)
		times = append(times, time.Since(start))
	}
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)/2]), "p50-ns")
	b.ReportMetric(float64(times[len(times)*99/100]), "p99-ns")
}

func BenchmarkNullPolling(b *testing.B) { roundTrips(b, employ(b, nil).serve(), 0) }

func BenchmarkNullParked(b *testing.B) { roundTrips(b, employ(b, nil).serve(), time.Millisecond) }

func BenchmarkQueued(b *testing.B) {
	e := employ(b, nil).serve()
	alive := func() error { return nil }
	h := callbuf.Header{Op: uint16(cuda.OpNop)}
	for b.Loop() {
		e.g.Send(h, nil, alive)
	}
	e.call(cuda.OpNop, 0, nil)
}
