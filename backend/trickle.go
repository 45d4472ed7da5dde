package backend

import (
	"sync"
	"time"
)

const (
	// trickleBurst events that a domain's guests cause get into log and journal at once,
	trickleBurst = 256
	// and trickleRate a second after that.
	trickleRate = 16
)

// trickle lets through only so many events that guests can't fill the host's log
// by coming and going. What is left out is counted.
type trickle struct {
	mu   sync.Mutex
	room int       // events that may pass
	at   time.Time // when room was worked out
	lost int
}

func newTrickle() *trickle { return &trickle{room: trickleBurst, at: time.Now()} }

// pass tells whether an event may pass; if so, also how many before it couldn't.
func (t *trickle) pass(now time.Time) (ok bool, lost int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	const each = time.Second / trickleRate
	if more := now.Sub(t.at) / each; more > 0 {
		t.at = t.at.Add(more * each)
		t.room = int(min(time.Duration(t.room)+more, trickleBurst))
	}
	// Once something was left out the rest comes a second's worth at a time, so that
	// it isn't said of each how many it follows.
	if t.room == 0 || t.lost > 0 && t.room < trickleRate {
		t.lost++
		return false, 0
	}
	t.room--
	lost, t.lost = t.lost, 0
	return true, lost
}
