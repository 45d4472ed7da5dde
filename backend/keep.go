package backend

import (
	"context"
	"time"
)

// keepSlice is how often a worker is looked at that stores what its domain shares.
const keepSlice = 20 * time.Millisecond

// outlives waits for as long as a worker may take to end after its process has: deathGrace, and longer if it stores device segments that
// nobody else holds. It returns false when ctx is done.
func (d *Daemon) outlives(ctx context.Context, g *guest) bool {
	if !pause(ctx, deathGrace) {
		return false
	}
	patience := d.storing(g)
	if patience == 0 {
		return true
	}
	for until := time.Now().Add(patience); d.storing(g) != 0 && time.Now().Before(until); {
		if !pause(ctx, keepSlice) {
			return false
		}
	}
	return pause(ctx, deathGrace)
}

// pause returns false when ctx is done before.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// storing is how long a worker may take to store what it holds.
func (d *Daemon) storing(g *guest) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.guests[g.id] != g { // its seat is free already, and maybe its domain's page
		return 0
	}
	return g.dom.avcpu.page.Holds(g.slot)
}
