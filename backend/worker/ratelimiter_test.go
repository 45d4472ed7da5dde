package worker

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pegasus/backend/gate"
	"pegasus/internal/logs"
)

// Workers' log output is bounded by their domain's gate page, and the next line that passes reports the dropped bytes,
// whichever worker writes it.
func TestTrickle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		page, err := gate.New()
		if err != nil {
			t.Fatal(err)
		}
		defer page.Free()
		var log bytes.Buffer
		note := logs.New(&log, nil)
		one, other := &rateLimiter{to: &log, note: note}, &rateLimiter{to: &log, note: note}
		one.use(page.Log())
		other.use(page.Log())
		line := []byte(strings.Repeat("x", 1023) + "\n")
		for range 500 {
			for _, w := range []*rateLimiter{one, other} {
				if n, err := w.Write(line); n != len(line) || err != nil {
					t.Fatal(n, err)
				}
			}
		}
		if log.Len() != gate.LogBurst {
			t.Errorf("%d bytes passed at once, want %d", log.Len(), gate.LogBurst)
		}
		log.Reset()
		time.Sleep(time.Second)
		other.Write(line)
		if got := log.String(); !strings.Contains(got, " bytes=958464\n") || !strings.HasSuffix(got, string(line)) {
			t.Errorf("after a second: %.80q, want 958464 bytes left out and a line", got)
		}
		log.Reset()
		for range 10 * 1000 { // often, and little at a time
			time.Sleep(time.Millisecond)
			one.Write(line[:100])
		}
		if n := log.Len(); n < 9*gate.LogRate || n > 20*gate.LogRate {
			t.Errorf("%d bytes passed in 10 s, want about %d", n, 10*gate.LogRate)
		}
	})
}
