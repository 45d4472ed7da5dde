package worker

import (
	"fmt"
	"io"
	"sync"

	"pegasus/backend/gate"
)

// trickle lets through what the domain's allowance for the host's log has room for.
// Lines without room are counted in the gate page; the next line of any of the
// domain's workers says how many bytes they came to.
type trickle struct {
	mu   sync.Mutex
	to   io.Writer
	room *gate.LogAllowance // nil before the worker has its gate page: the daemon's doing, not the guest's
}

// use bounds what is written from here on.
func (w *trickle) use(room *gate.LogAllowance) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.room = room
}

// Write never fails for what it leaves out.
func (w *trickle) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.room == nil {
		return w.to.Write(b)
	}
	if !w.room.Take(len(b)) {
		return len(b), nil
	}
	if lost := w.room.Lost(); lost > 0 {
		fmt.Fprintf(w.to, "worker: %d bytes of its domain's doing are left out here\n", lost)
	}
	return w.to.Write(b)
}
