//go:build soak

package xen

import (
	"slices"
	"testing"
)

// All that is tried with this Debian's Xen is tried with the next one's, too.
func TestSoakRelease(t *testing.T) {
	try(t, StartRelease(t, Trixie), slices.Concat(always, []part{{"Restored", testRestored}}))
}
