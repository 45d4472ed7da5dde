package gate

import "pegasus/accel"

// Occupant is a guest process of the domain that has used the accelerator.
type Occupant struct {
	PID    uint32 // 0: unknown
	Memory uint64 // device memory that it holds
	Busy   int64  // ns of compute time that it has used
}

// Serves records the pid, on this host, of the guest process that the worker serves; the domain's other workers read
// it.
func (m *Member) Serves(pid int) { m.slot.guest.Store(uint32(pid)) }

// Occupants returns the domain's running processes that have used the accelerator. The page belongs to one domain, so
// it lists no other domain's.
func (m *Member) Occupants() []Occupant {
	var all []Occupant
	taken := m.page.at.taken()
	for i := range taken {
		s := &taken[i]
		if s.state.Load() != slotJoined {
			continue
		}
		o := Occupant{s.guest.Load(), s.memory[DeviceMemory].Load(), s.used[accel.Compute].Load()}
		if o.Memory > 0 || o.Busy > 0 {
			all = append(all, o)
		}
	}
	return all
}
