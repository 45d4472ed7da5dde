package soft

import (
	"testing"

	"golang.org/x/sys/unix"

	"pegasus/accel"
	"pegasus/accel/acceltest"
)

func TestConformance(t *testing.T) {
	shared, err := unix.Mmap(-1, 0, 1<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	acceltest.Run(t, func(t testing.TB, o acceltest.Options) accel.Device {
		d, _ := open(t, func(c *Config) {
			c.Quota, c.KernelTimeout, c.OnTimeout = o.Quota, o.KernelTimeout.Nanoseconds(), o.OnTimeout
		})
		return d
	}, shared, acceltest.Traits{Cancels: true, Exact: true})
}
