package driver

// #include <stdlib.h>
// #include "monitor.h"
import "C"

import "unsafe"

// MonitorLibrary is NVIDIA's monitoring library.
const MonitorLibrary = "libnvidia-ml.so.1"

// DeviceTelemetry contains values of a device that can be observed from outside; zeros where unavailable.
type DeviceTelemetry struct {
	Used uint64 // bytes of its memory, by all processes
	Busy int    // percent of the last moments in which kernels ran
	Link uint64 // bytes a second to or from the host, at most
}

// laneRates are the bytes per second that a lane of PCI Express transfers in one direction, by generation.
var laneRates = []uint64{1: 250e6, 2: 500e6, 3: 985e6, 4: 1969e6, 5: 3938e6, 6: 7563e6}

// Watch reads the values of the device with a UUID through such a library. It returns false if the library can't be
// loaded, or doesn't have the device.
func Watch(library, uuid string) (s DeviceTelemetry, ok bool) {
	l, u := C.CString(library), C.CString(uuid)
	defer C.free(unsafe.Pointer(l))
	defer C.free(unsafe.Pointer(u))
	var seen C.struct_sight
	if C.watch_device(l, u, &seen) == 0 {
		return s, false
	}
	generation := min(int(seen.generation), len(laneRates)-1)
	return DeviceTelemetry{Used: uint64(seen.used), Busy: int(seen.busy), Link: laneRates[generation] * uint64(seen.lanes)}, true
}
