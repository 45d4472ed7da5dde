package driver

import (
	"testing"
	"time"

	"pegasus/cluster/claims"
)

// The domain of listed units ends with the third list without them; that of an init container, which no list has, when it
// has been idle for ten minutes.
func TestAbsence(t *testing.T) {
	start := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		init  bool
		lists int
		after time.Duration
		want  bool
	}{{false, 2, time.Hour, false}, {false, 3, 0, true}, {true, 100, 599 * time.Second, false}, {true, 100, 600 * time.Second, true}} {
		if got := (absence{since: start, lists: c.lists}).ends(&claims.Domain{Init: c.init}, start.Add(c.after)); got != c.want {
			t.Errorf("%+v: got %v", c, got)
		}
	}
}
