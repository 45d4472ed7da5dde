package test

import (
	"strings"
	"testing"
	"time"
)

// Time measured by a driver's events is shared as a software accelerator's is: little work is in flight when a turn
// ends, as predicted, and its owner is charged for it.
func TestSharesOnNVIDIA(t *testing.T) {
	sharers := []sharer{{"d1", 256, 25}, {"d2", 512, 1}, {"d3", 1024, 5}}
	h := startNVIDIA(t, strings.ReplaceAll(shareConfig("lag", "production", sharers), "cores = 1\n", ""))
	for _, s := range sharers {
		h.run(s)
	}
	h.await(sharers)
	time.Sleep(2 * time.Second)
	checkShares(t, h.over(measuring()/2), proportional(sharers), 3)
}
