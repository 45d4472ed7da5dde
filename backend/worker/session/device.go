package session

import (
	"pegasus/accel"
	"pegasus/backend/gate"
	"pegasus/cuda"
)

// deviceCalls handles the calls about the device as a whole, and about the domain's use of it. It has no state of its
// own.
type deviceCalls struct{ base }

// driverVersion is the highest version that cuDriverGetVersion returns: CUDA 12.4.
const driverVersion = 12040

// DeviceInfo describes the one device that is visible to the process.
func (h *deviceCalls) DeviceInfo(_ cuda.Call, a cuda.DeviceInfoArgs) (out cuda.DeviceInfoResult, r cuda.Result) {
	to, ok := h.host.Arena(a.ArenaOffset, a.Capacity)
	if !ok {
		return out, cuda.ErrorInvalidValue
	}
	d := h.device.Snapshot()
	if _, quota := h.gate.Memory(gate.DeviceMemory); quota < d.TotalMem {
		d.TotalMem = quota
	}
	version := uint32(driverVersion)
	if v := h.can.Version; v != 0 {
		version = min(version, v)
	}
	d.Attributes[cuda.NoAttribute] = h.can.Quirks
	blob := (&cuda.DeviceSnapshot{DriverVersion: version, Devices: []cuda.Device{d}}).Append(nil)
	if len(blob) > len(to) {
		return out, cuda.ErrorInvalidValue
	}
	return cuda.DeviceInfoResult{Length: uint64(copy(to, blob))}, cuda.Success
}

// DomainUsage returns the usage of the process's domain, from the domain's gate page, which has no other domain's.
func (h *deviceCalls) DomainUsage(_ cuda.Call, a cuda.DomainUsageArgs) (out cuda.DomainUsageResult, r cuda.Result) {
	to, ok := h.host.Arena(a.ArenaOffset, a.Capacity)
	if !ok {
		return out, cuda.ErrorInvalidValue
	}
	u := cuda.DomainUsage{Now: gate.Now()}
	u.MemoryUsed, u.MemoryQuota = h.gate.Memory(gate.DeviceMemory)
	u.MemoryQuota = min(u.MemoryQuota, h.device.Snapshot().TotalMem)
	for _, o := range h.gate.Occupants() {
		u.Busy += o.Busy
		if o.PID != 0 {
			u.Processes = append(u.Processes, cuda.ProcessUsage{PID: o.PID, Memory: o.Memory, Busy: o.Busy})
		}
	}
	blob := u.Append(nil, len(to))
	if len(blob) > len(to) {
		return out, cuda.ErrorInvalidValue
	}
	return cuda.DomainUsageResult{Length: uint64(copy(to, blob))}, cuda.Success
}

// Actions of Profile.
const (
	profileBegin  = 1
	profileReport = 2
)

func (h *deviceCalls) Profile(_ cuda.Call, a cuda.ProfileArgs) (out cuda.ProfileResult, r cuda.Result) {
	to, ok := h.host.Arena(a.ArenaOffset, a.Capacity)
	if !ok {
		return out, cuda.ErrorInvalidValue
	}
	p := h.can.Diagnostics
	if p == nil {
		return out, cuda.ErrorNotSupported
	}
	switch a.Action {
	case profileBegin:
		p.Profile()
	case profileReport:
		out.Length = uint64(copy(to, p.Report()))
	default:
		return out, cuda.ErrorInvalidValue
	}
	return out, cuda.Success
}

// Flags of Check.
const (
	checkBounds = 1 << iota
	checkOrder
)

func (h *deviceCalls) Check(_ cuda.Call, a cuda.CheckArgs) cuda.Result {
	if a.Checks == 0 || a.Checks&^(checkBounds|checkOrder) != 0 {
		return cuda.ErrorInvalidValue
	}
	c := h.can.Diagnostics
	if c == nil {
		return cuda.ErrorNotSupported
	}
	c.Check(accel.Checks{Bounds: a.Checks&checkBounds != 0, Order: a.Checks&checkOrder != 0, Seed: a.Seed})
	return cuda.Success
}
