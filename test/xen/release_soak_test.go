//go:build soak

package xen

import (
	"slices"
	"testing"
)

// All parts run with the next Debian release's Xen, too.
func TestSoakRelease(t *testing.T) {
	try(t, StartRelease(t, Trixie), slices.Concat(always, []part{{"Restored", testRestored}}))
}
