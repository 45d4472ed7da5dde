package copier

import (
	"testing"

	"pegasus/accel"
	"pegasus/accel/acceltest"
)

func TestConformance(t *testing.T) {
	acceltest.Run(t, func(t testing.TB, o acceltest.Options) accel.Device {
		d := Open(64<<20, o.Quota)
		t.Cleanup(func() { d.Close() })
		return d
	}, make([]byte, 1<<20), acceltest.Traits{CopiesOnly: true})
}
