package gate

import "pegasus/accel"

// Occupant is a guest process of the domain that has used the accelerator.
type Occupant struct {
	PID    uint32 // 0: not known
	Memory uint64 // device memory that it holds
	Busy   int64  // ns that it has computed
}

// Serves notes which process of this host the worker serves, for the others of its domain.
func (m *Member) Serves(pid int) { m.slot.guest.Store(uint32(pid)) }

// Occupants are the domain's processes that have used the accelerator and still run. The page
// is the domain's own, so there are no others.
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
