package hypervisor

import "math/bits"

// CPUSet is a set of the host's CPUs.
type CPUSet [16]uint64

// MaxCPUs is how many CPUs a set can tell apart.
const MaxCPUs = 16 * 64

// FirstCPUs is the set of the first n CPUs.
func FirstCPUs(n int) (s CPUSet) {
	for i := range min(n, MaxCPUs) {
		s.Add(i)
	}
	return s
}

// Add adds a CPU; those that a set cannot tell apart count as its last.
func (s *CPUSet) Add(cpu int) {
	cpu = min(max(cpu, 0), MaxCPUs-1)
	s[cpu/64] |= 1 << (cpu % 64)
}

// Len is how many CPUs are in the set.
func (s *CPUSet) Len() (n int) {
	for _, w := range s {
		n += bits.OnesCount64(w)
	}
	return n
}

// common is how many CPUs are in both sets.
func (s *CPUSet) common(o *CPUSet) (n int) {
	for i, w := range s {
		if w &= o[i]; w != 0 {
			n += bits.OnesCount64(w)
		}
	}
	return n
}
