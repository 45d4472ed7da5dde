package events

import (
	"sync"
	"time"
)

const (
	// burst bounds the events caused by a domain's guests that are logged at once,
	burst = 256
	// and rate the events a second after that.
	rate = 16
)

// RateLimiter is a rate limiter for events: guests that connect and disconnect repeatedly cannot fill the host's log.
// It counts the dropped events.
type RateLimiter struct {
	mu      sync.Mutex
	left    int       // events that may pass
	at      time.Time // when left was last updated
	dropped int
}

// NewRateLimiter returns a limiter that allows a burst.
func NewRateLimiter() *RateLimiter { return &RateLimiter{left: burst, at: time.Now()} }

// allow reports whether an event may pass; if so, it also returns the number of events dropped before it.
func (t *RateLimiter) allow(now time.Time) (ok bool, dropped int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	const each = time.Second / rate
	if more := now.Sub(t.at) / each; more > 0 {
		t.at = t.at.Add(more * each)
		t.left = int(min(time.Duration(t.left)+more, burst))
	}
	// After a drop the next events pass a second's worth at a time, so that not every event reports a count of dropped
	// ones.
	if t.left == 0 || t.dropped > 0 && t.left < rate {
		t.dropped++
		return false, 0
	}
	t.left--
	dropped, t.dropped = t.dropped, 0
	return true, dropped
}
