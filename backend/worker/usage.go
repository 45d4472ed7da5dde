package worker

import (
	"pegasus/backend/gate"
	"pegasus/cuda"
)

// DomainUsage returns the usage of the process's domain, from the domain's gate page, which has no other domain's.
func (s *session) DomainUsage(_ cuda.Call, a cuda.DomainUsageArgs) (out cuda.DomainUsageResult, r cuda.Result) {
	to, ok := s.host.Arena(a.ArenaOffset, a.Capacity)
	if !ok {
		return out, cuda.ErrorInvalidValue
	}
	u := cuda.DomainUsage{Now: gate.Now()}
	u.MemoryUsed, u.MemoryQuota = s.gate.Memory(gate.DeviceMemory)
	u.MemoryQuota = min(u.MemoryQuota, s.device.Snapshot().TotalMem)
	for _, o := range s.gate.Occupants() {
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
