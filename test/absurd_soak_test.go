//go:build soak

package test

import (
	"testing"
	"time"
)

// Absurd calls with other seeds and in greater number, then each in a process of its own.
func TestSoakAbsurdCalls(t *testing.T) {
	path := program(t, "absurd")
	h := startHost(t, absurdDomains)
	for end := time.Now().Add(soakTime(t)); time.Now().Before(end) && !t.Failed(); {
		h.absurd(path, absurdStates, nil, "-r", "100")
	}
	h.absurd(path, absurdStates, nil, "-r", "0", "-e")
}
