package events

import (
	"testing"
	"time"
)

func TestRateLimiter(t *testing.T) {
	w := NewRateLimiter()
	now, passed, left := w.at, 0, 0
	event := func() {
		ok, lost := w.allow(now)
		if left += lost; ok {
			passed++
		}
	}
	for range 1000 {
		event()
	}
	if passed != burst || left != 0 {
		t.Errorf("at once: %d passed, %d left out", passed, left)
	}
	now = now.Add(time.Second - 1)
	event()
	if passed != burst || left != 0 {
		t.Errorf("a little later: %d passed, %d left out", passed, left)
	}
	now = now.Add(1)
	event()
	if passed != burst+1 || left != 1001-burst {
		t.Errorf("after a second: %d passed, %d left out", passed, left)
	}
	passed = 0
	for range 10 * 1000 {
		now = now.Add(time.Millisecond)
		event()
	}
	if passed < 9*rate || passed > 11*rate {
		t.Errorf("in 10 s: %d passed", passed)
	}
	now, passed = now.Add(24*365*time.Hour), 0
	for range 1000 {
		event()
	}
	if passed != burst {
		t.Errorf("after a year: %d passed", passed)
	}
}
