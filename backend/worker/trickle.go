package worker

import (
	"fmt"
	"io"
	"sync"
	"time"
)

const (
	// trickleBurst bytes of a guest's doing get into the host's log at once,
	trickleBurst = 64 << 10
	// and trickleRate bytes a second after that.
	trickleRate = 4 << 10
)

// trickle lets through only so much that a guest can't fill the host's log, with
// lines about it. What is left out is counted.
type trickle struct {
	mu   sync.Mutex
	to   io.Writer
	room int       // bytes that may pass
	at   time.Time // when room was worked out
	lost int
}

func newTrickle(to io.Writer) *trickle {
	return &trickle{to: to, room: trickleBurst, at: time.Now()}
}

// Write never fails for what it leaves out.
func (w *trickle) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refill(time.Now())
	if len(b) > w.room {
		w.lost += len(b)
		return len(b), nil
	}
	w.room -= len(b)
	if w.lost > 0 {
		n, _ := fmt.Fprintf(w.to, "worker: %d bytes of its guest's doing are left out here\n", w.lost)
		w.room, w.lost = w.room-n, 0
	}
	return w.to.Write(b)
}

// refill adds what has become free since the last time, in whole bytes.
func (w *trickle) refill(now time.Time) {
	more := int(min(now.Sub(w.at), time.Hour) * trickleRate / time.Second)
	if more > 0 {
		w.at = now
		w.room = min(w.room+more, trickleBurst)
	}
}
