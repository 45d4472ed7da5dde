//go:build cgo

package nvidia

import (
	"path/filepath"
	"strings"

	"pegasus/accel/nvidia/driver"
	"pegasus/accel/nvidia/listing"
)

// Watch adds to the driver's descriptions of devices the values that NVIDIA's monitoring library reports, if it is
// installed with the driver.
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
