package cuda

import (
	"slices"
	"testing"
)

// Each value without an effect is reported, and no other.
func TestIgnored(t *testing.T) {
	for _, c := range []struct {
		cuda, driver string
		want         []string
	}{
		{"", "", nil},
		{"12.2", "535.54.03", nil},
		{"twelve", "", []string{"pegasus: PEGASUS_CUDA=twelve: want a CUDA from 11.0 to 13.0; ignored"}},
		{"14.0", "9", []string{"pegasus: PEGASUS_CUDA=14.0: want a CUDA from 11.0 to 13.0; ignored", "pegasus: PEGASUS_DRIVER=9: want a driver from 450 on, such as 535.54.03; ignored"}},
		{"", "390.157", []string{"pegasus: PEGASUS_DRIVER=390.157: want a driver from 450 on, such as 535.54.03; ignored"}},
	} {
		got := Ignored(func(name string) string {
			return map[string]string{cudaVariable: c.cuda, driverVariable: c.driver}[name]
		})
		if !slices.Equal(got, c.want) {
			t.Errorf("%s, %s: got %q, want %q", c.cuda, c.driver, got, c.want)
		}
		if version, _ := ReportedVersions(12040, func(name string) string {
			return map[string]string{cudaVariable: c.cuda, driverVariable: c.driver}[name]
		}); len(c.want) > 0 && version != 12040 {
			t.Errorf("%s, %s: got CUDA %d, want the host's", c.cuda, c.driver, version)
		}
	}
}
