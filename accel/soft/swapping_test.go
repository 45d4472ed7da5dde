package soft

import (
	"testing"

	"pegasus/accel/acceltest"
)

func TestSwapping(t *testing.T) {
	acceltest.RunSwapping(t, func(t testing.TB, n int, memory, swap uint64) acceltest.Crowd {
		page, devices := swapped(t, n, memory, swap)
		return acceltest.CrowdOf(devices, page)
	})
}
