//go:build soak

package test

import "testing"

// At least two hundred processes are killed, and it goes on for long.
func TestSoakConservation(t *testing.T) { conservation(t, 200, soakTime(t)) }
