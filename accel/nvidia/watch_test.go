//go:build cgo

package nvidia

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"pegasus/accel/nvidia/driver"
	"pegasus/accel/nvidia/listing"
)

// The values that the library beside the driver's reports of a device are passed on; for a device unknown to it, and
// without it, there are none.
func TestWatch(t *testing.T) {
	dir := t.TempDir()
	so := filepath.Join(dir, driver.MonitorLibrary)
	if out, err := exec.Command("gcc", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "testdata/monitor.c", "-o", so).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	all := []listing.Device{{UUID: "GPU-known"}, {UUID: "GPU-other"}}
	Watch(filepath.Join(dir, "libcuda.so.1"), all)
	if d := all[0]; d.Used != 3<<30 || d.Busy != 41 || d.Link != 16*3938e6 {
		t.Errorf("%+v", d)
	}
	if d := all[1]; d.Used != 0 || d.Busy != 0 || d.Link != 0 {
		t.Errorf("%+v", d)
	}
	if os.Getenv(realDriver) == "" {
		Watch(filepath.Join(t.TempDir(), "libcuda.so.1"), all[1:])
		if d := all[1]; d.Link != 0 {
			t.Errorf("without a library: %+v", d)
		}
	}
}
