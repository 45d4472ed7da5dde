package soft

import (
	"testing"

	"pegasus/accel/conformance"
)

func TestSwapping(t *testing.T) {
	conformance.RunSwapping(t, func(t testing.TB, n int, memory, swap uint64) conformance.Crowd {
		page, devices := swapped(t, n, memory, swap)
		return conformance.CrowdOf(devices, page)
	})
}
