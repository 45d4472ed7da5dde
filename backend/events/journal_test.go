package events

import (
	"log/slog"
	"testing"

	"pegasus/backend/control"
)

func TestJournal(t *testing.T) {
	j := NewJournal(slog.New(slog.DiscardHandler))
	for range journalSize + 5 {
		j.Note("old", "", "x")
	}
	latest, next, stop := j.Follow()
	if len(latest) != journalSize {
		t.Errorf("%d events kept", len(latest))
	}
	j.Note("new", "web", "%d guests", 3)
	if e := <-next; e.Kind != "new" || e.Domain != "web" || e.Text != "3 guests" {
		t.Errorf("%+v", e)
	}
	stop()
	j.Note("later", "", "x")
	select {
	case e := <-next:
		t.Errorf("after stop: %+v", e)
	default:
	}
	var slow []control.Event
	slow, next, stop = j.Follow()
	defer stop()
	for range 3 * journalSize { // a follower that does not read blocks no writer
		j.Note("flood", "", "x")
	}
	if len(slow) != journalSize || len(next) == 0 {
		t.Errorf("%d kept, %d to be read", len(slow), len(next))
	}
}

// A domain whose guests connect and disconnect all day does not displace the events of other domains.
func TestJournalIsFair(t *testing.T) {
	j := NewJournal(slog.New(slog.DiscardHandler))
	j.Note("policy", "", "rr")
	j.Note("guest", "calm", "came")
	for range 3 * journalSize {
		j.Note("guest", "busy", "came")
	}
	latest, _, stop := j.Follow()
	defer stop()
	if len(latest) != journalSize || latest[0].Kind != "policy" || latest[1].Domain != "calm" {
		t.Errorf("%d events, beginning with %+v", len(latest), latest[:2])
	}
}
