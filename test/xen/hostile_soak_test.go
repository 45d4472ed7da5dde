//go:build soak

package xen

import (
	"testing"
	"time"
)

// A domU that does harm for longer.
func TestSoakHostile(t *testing.T) { hostile(t, Start(t), 15*time.Second) }
