//go:build soak

package test

import "testing"

// Hostile guests go on for long.
func TestSoakHostileSegment(t *testing.T) { hostileSegment(t, soakTime(t)) }

func TestSoakHostileCalls(t *testing.T) { hostileCalls(t, soakTime(t)) }

// A worker writes over its domain's gate page for long.
func TestSoakHostileGatePage(t *testing.T) { hostilePages(t, soakTime(t), "pegasus-gate") }

// A worker writes over the page that all workers of the accelerator share, too.
func TestSoakHostileEnginePage(t *testing.T) {
	hostilePages(t, soakTime(t), "pegasus-gate", "pegasus-engine")
}
