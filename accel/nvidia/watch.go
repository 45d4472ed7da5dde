//go:build cgo

package nvidia

import (
	"path/filepath"
	"strings"

	"pegasus/accel/nvidia/driver"
	"pegasus/accel/nvidia/listing"
)

// Watch adds to what the driver says of devices what can be seen of them from outside, by the library that is installed with
// the driver's, where there is one.
func Watch(library string, all []listing.Device) {
	places := []string{driver.MonitorLibrary}
	if strings.Contains(library, "/") {
		places = []string{filepath.Join(filepath.Dir(library), driver.MonitorLibrary), driver.MonitorLibrary}
	}
	for i := range all {
		for _, path := range places {
			if s, ok := driver.Watch(path, all[i].UUID); ok {
				all[i].Used, all[i].Busy, all[i].Link = s.Used, s.Busy, s.Link
				break
			}
		}
	}
}
