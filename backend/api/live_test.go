package api

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"pegasus/backend/events"
	"pegasus/configs"
)

// Callers of the live view share one state in each period, with its encoded changes; a caller that connects gets a new
// one.
func TestLiveStateShared(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	r := registry(t, configs.Default(), "", t.TempDir(), events.NewJournal(log), log)
	r.Start(context.WithCancel(t.Context()))
	var l latestState
	take := func(old time.Duration) *hostState {
		t.Helper()
		s, err := l.take(r.Requests(), old)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	first := take(0)
	if again := take(time.Hour); again != first {
		t.Errorf("state %d after state %d: want the same one", again.number, first.number)
	}
	time.Sleep(time.Millisecond)
	next := take(0)
	if next == first || next.before != first.number || next.number == first.number {
		t.Errorf("state %d with changes since %d after state %d: want the next one", next.number, next.before, first.number)
	}
}
