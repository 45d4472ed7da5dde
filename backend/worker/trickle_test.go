package worker

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestTrickle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		w := newTrickle(&log)
		line := []byte(strings.Repeat("x", 1023) + "\n")
		for range 1000 {
			if n, err := w.Write(line); n != len(line) || err != nil {
				t.Fatal(n, err)
			}
		}
		if log.Len() != trickleBurst {
			t.Errorf("%d bytes passed at once, want %d", log.Len(), trickleBurst)
		}
		log.Reset()
		time.Sleep(time.Second)
		w.Write(line)
		left := (1000 - trickleBurst/len(line)) * len(line)
		if got := log.String(); !strings.HasPrefix(got, "worker: ") || !strings.Contains(got, "958464 bytes") || left != 958464 {
			t.Errorf("after a second: %.80q; %d bytes were left out", got, left)
		}
		log.Reset()
		for range 10 * 1000 { // often, and little at a time
			time.Sleep(time.Millisecond)
			w.Write(line[:100])
		}
		if n := log.Len(); n < 9*trickleRate || n > 15*trickleRate {
			t.Errorf("%d bytes passed in 10 s, want about %d", n, 10*trickleRate)
		}
	})
}
