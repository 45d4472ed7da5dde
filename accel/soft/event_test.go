package soft

import (
	"sync/atomic"
	"testing"
	"time"

	"pegasus/accel"
	"pegasus/cuda"
)

// The time of an event that waits is that at which the work before it ended, for any scheduling of goroutines: with a
// clock that advances by a millisecond at each read, events behind the same work are at the same time.
func TestTimesOfEvents(t *testing.T) {
	var now atomic.Int64
	_, c := open(t, func(c *Config) { c.Clock = func() int64 { return now.Add(int64(time.Millisecond)) } })
	gate := make(chan struct{})
	begun := make(chan struct{}, 1)
	m := goModule(c, 0, func(*run) *fault {
		begun <- struct{}{}
		<-gate
		return nil
	})
	at := func(e accel.Event) int64 {
		t.Helper()
		at, r := e.Time()
		want(t, r, cuda.Success)
		return at
	}
	s, other := stream(t, c, streamNonBlocking), stream(t, c, streamNonBlocking)
	var events [6]accel.Event
	for i := range events {
		events[i] = event(t, c)
	}
	submit(t, c, s, launchOf(m))
	<-begun
	submit(t, c, s, accel.Record{Event: events[0]})
	submit(t, c, s, accel.Record{Event: events[1]})
	submit(t, c, other, accel.WaitEvent{Event: events[1]})
	submit(t, c, other, accel.Record{Event: events[2]})
	submit(t, c, s, launchOf(m))
	submit(t, c, s, accel.Record{Event: events[3]})
	submit(t, c, s, accel.Record{Event: events[4]})
	submitted := now.Load()
	gate <- struct{}{}
	<-begun
	gate <- struct{}{}
	want(t, synchronize(t, c), cuda.Success)
	submit(t, c, s, accel.Record{Event: events[5]})
	for _, pair := range [][2]int{{0, 1}, {1, 2}, {3, 4}} {
		if a, b := at(events[pair[0]]), at(events[pair[1]]); a != b {
			t.Errorf("events %d and %d have nothing between them and are %v apart", pair[0], pair[1], time.Duration(b-a))
		}
	}
	if first, second, last := at(events[0]), at(events[3]), at(events[5]); first <= submitted || second <= first || last <= second {
		t.Errorf("submitted by %d, kernels ended at %d and %d, recorded later at %d", submitted, first, second, last)
	}
}
