package worker

import (
	"io"
	"log/slog"
	"sync"

	"pegasus/backend/gate"
)

// rateLimiter limits the worker's log lines to the domain's allowance for the host's log. Dropped lines are counted in
// the gate page; the next line of any of the domain's workers reports their bytes.
type rateLimiter struct {
	mu   sync.Mutex
	to   io.Writer
	note *slog.Logger       // for lines of its own, past the limit
	room *gate.LogAllowance // nil before the worker has its gate page: such lines come from the daemon's input, not the guest's
}

// use sets the allowance for all later writes.
func (w *rateLimiter) use(room *gate.LogAllowance) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.room = room
}

// Write returns no error for dropped lines.
func (w *rateLimiter) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.room == nil {
		return w.to.Write(b)
	}
	if !w.room.Take(len(b)) {
		return len(b), nil
	}
	if lost := w.room.Lost(); lost > 0 {
		w.note.Warn("log lines dropped", "bytes", lost)
	}
	return w.to.Write(b)
}
