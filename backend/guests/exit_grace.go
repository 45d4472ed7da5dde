package guests

import (
	"context"
	"time"
)

// keepSlice is the period at which a worker that stores shared segments is checked.
const keepSlice = 20 * time.Millisecond

// outlives blocks for as long as a worker may take to end after its process has: deathGrace, and longer if it stores
// device segments that no other worker holds. It returns false when ctx is done.
func (g *guest) outlives(ctx context.Context) bool {
	if !pause(ctx, deathGrace) {
		return false
	}
	patience := g.storeTime()
	if patience == 0 {
		return true
	}
	for until := time.Now().Add(patience); g.storeTime() != 0 && time.Now().Before(until); {
		if !pause(ctx, keepSlice) {
			return false
		}
	}
	return pause(ctx, deathGrace)
}

// pause blocks for d, or until ctx is done; then it returns false.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// storeTime returns how long a worker may take to store the segments that it holds.
func (g *guest) storeTime() time.Duration {
	reg := g.dom.reg
	reg.mu.Lock()
	defer reg.mu.Unlock()
	if reg.guests[g.id] != g { // its seat is free already, and possibly its domain's page
		return 0
	}
	return g.dom.attachment.Page.Holds(g.slot)
}
