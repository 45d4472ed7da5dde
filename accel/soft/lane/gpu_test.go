//go:build gpu

package lane

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"pegasus/accel/ptx/cases"
	"pegasus/accel/soft/lane/internal/lanetest"
)

// A GPU returns the expected values of the cases. Without one, and its driver, the test is skipped.
func TestGPU(t *testing.T) {
	forms, kernels := readCases(t)
	list := append(forms, kernels...)
	for _, p := range products() {
		list = append(list, p.random(lanetest.Random(31)))
	}
	start := func() (*cases.Device, error) {
		d, err := cases.Start(exec.Command(filepath.Join(os.Getenv("PEGASUS_BUILD"), "gpu/cases")))
		if err == nil {
			t.Cleanup(func() { d.Close() })
		}
		return d, err
	}
	d, err := start()
	if err != nil {
		t.Skipf("NOTHING WAS COMPARED: no GPU can be used here: %v", err)
	}
	if strings.Contains(d.Name, "Pegasus") {
		t.Skipf("NOTHING WAS COMPARED: the system's libcuda.so.1 is Pegasus's own, with %q", d.Name)
	}
	r, err := d.Compare(list, start)
	if err != nil {
		t.Fatal(err)
	}
	for _, wrong := range r.Wrong {
		t.Error(wrong)
	}
	t.Logf("%s, capability %d.%d: %d of %d cases are the same; these differ, as they may: %q; these are unknown there: %q",
		d.Name, d.Major, d.Minor, r.Same, len(list), r.Free, r.Unknown)
}
