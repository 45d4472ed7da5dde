//go:build soak

package test

import "testing"

// At least two hundred processes are killed, over a long time.
func TestSoakConservation(t *testing.T) { conservation(t, 200, soakTime(t)) }
