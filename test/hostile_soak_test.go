//go:build soak

package test

import "testing"

// Hostile guests go on for long.
func TestSoakHostileSegment(t *testing.T) { hostileSegment(t, soakTime(t)) }

func TestSoakHostileCalls(t *testing.T) { hostileCalls(t, soakTime(t)) }
