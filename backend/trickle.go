package backend

import (
	"sync"
	"time"
)

const (
	// trickleBurst bounds the events caused by a domain's guests that are logged at once,
	trickleBurst = 256
	// and trickleRate the events a second after that.
	trickleRate = 16
)

// trickle is a rate limiter for events: guests that connect and disconnect repeatedly cannot fill the host's log. It
// counts the dropped events.
type trickle struct {
	mu   sync.Mutex
	room int       // events that may pass
	at   time.Time // when room was last updated
	lost int
}

func newTrickle() *trickle { return &trickle{room: trickleBurst, at: time.Now()} }

// pass reports whether an event may pass; if so, it also returns the number of events dropped before it.
func (t *trickle) pass(now time.Time) (ok bool, lost int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	const each = time.Second / trickleRate
	if more := now.Sub(t.at) / each; more > 0 {
		t.at = t.at.Add(more * each)
		t.room = int(min(time.Duration(t.room)+more, trickleBurst))
	}
	// After a drop the next events pass a second's worth at a time, so that not every event reports a count of dropped
	// ones.
	if t.room == 0 || t.lost > 0 && t.room < trickleRate {
		t.lost++
		return false, 0
	}
	t.room--
	lost, t.lost = t.lost, 0
	return true, lost
}
