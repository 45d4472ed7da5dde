//go:build cgo

package nvidia

import (
	"pegasus/accel"
	"pegasus/accel/nvidia/driver"
	"pegasus/cuda"
)

// Capabilities returns the groups that the driver supports. Coordination is not among them: the worker program keeps
// the pages that all workers share.
func (d *Device) Capabilities() accel.Capabilities {
	all := accel.Capabilities{Control: d, Prediction: d, StreamWords: d.words(), Version: uint32(d.version), Quirks: quirks()}
	if d.mapper() != nil {
		all.Mapping = d
	}
	if d.exporter() != nil {
		all.PeerSharing = d
	}
	return all
}

// Capabilities returns the groups that belong to those of the device.
func (c *Context) Capabilities() accel.ContextCapabilities {
	all := accel.ContextCapabilities{Graphs: c, Printf: c, Tensors: c}
	if c.dev.exporter() != nil {
		all.Peers = c
	}
	return all
}

// words returns the stream memory operations that the driver supports.
func (d *Device) words() (s accel.WordSupport) {
	if driver.Has("cuStreamWaitValue64_v2") && driver.Has("cuStreamWriteValue64_v2") && d.byDevice {
		s.Bits, s.Nor = 64, d.about.Attributes[cuda.AttributeCanUseStreamWaitValueNor] != 0
	}
	return s
}

// quirks reports that NVIDIA's driver loads cubins and chooses textures' handles. The project's own library, which
// replaces it in tests, has a function that NVIDIA's lacks.
func quirks() int32 {
	if driver.Has("cuShmGet") {
		return cuda.GivesHandles
	}
	return cuda.GivesHandles | cuda.TakesMachineCode
}
