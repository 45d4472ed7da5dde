package soft

import "pegasus/accel"

// Capabilities returns all groups but PeerSharing: the memory of all workers is the host's, so files of the host can
// back it.
func (d *Device) Capabilities() accel.Capabilities {
	return accel.Capabilities{
		Control: d, Prediction: d, Waiting: d, Mapping: d, FileSharing: d, Coordination: d, Diagnostics: d,
		StreamWords: accel.WordSupport{Bits: 64, Nor: true},
	}
}

// Capabilities returns the groups that belong to those of the device. Tensor descriptions are not among them.
func (c *Context) Capabilities() accel.ContextCapabilities {
	return accel.ContextCapabilities{Graphs: c, Printf: c, Preparation: c, Files: c}
}
