//go:build soak

package test

import (
	"fmt"
	"testing"
	"time"
)

// Hostile guests go on for long.
func TestSoakHostileSegment(t *testing.T) { hostileSegment(t, soakTime(t)) }

func TestSoakHostileCalls(t *testing.T) { hostileCalls(t, soakTime(t)) }

// A worker writes over its domain's gate page for long.
func TestSoakHostileGatePage(t *testing.T) { hostilePages(t, soakTime(t), "pegasus-gate") }

// A worker writes over the page that all workers of the accelerator share, too. Meanwhile the others can lose their engines,
// but the daemon answers, and afterwards new processes compute with their shares.
func TestSoakHostileEnginePage(t *testing.T) {
	h := startHost(t, fmt.Sprintf(theftConfig, "accc", "", 256, 256))
	random := seeded(t)
	for limit := time.Now().Add(soakTime(t)); time.Now().Before(limit); {
		h.scribbleAsAWorker(random, limit, []string{"pegasus-gate", "pegasus-engine"})
	}
	sharers := []sharer{{"victim", 256, 1}, {"thief", 256, 2}}
	for _, s := range sharers {
		h.run(s)
	}
	h.await(sharers)
	checkShares(t, h.over(10*time.Second), equal(sharers), 3)
}
