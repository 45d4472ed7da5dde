package hypervisor

import "math/bits"

// CPUSet is a set of the host's CPUs.
type CPUSet [16]uint64

// MaxCPUs is the number of CPUs that a set distinguishes.
const MaxCPUs = 16 * 64

// FirstCPUs returns the set of the first n CPUs.
func FirstCPUs(n int) (s CPUSet) {
	for i := range min(n, MaxCPUs) {
		s.Add(i)
	}
	return s
}

// Add adds a CPU; a CPU beyond MaxCPUs counts as the last one.
func (s *CPUSet) Add(cpu int) {
	cpu = min(max(cpu, 0), MaxCPUs-1)
	s[cpu/64] |= 1 << (cpu % 64)
}

// Len returns the number of CPUs in the set.
func (s *CPUSet) Len() (n int) {
	for _, w := range s {
		n += bits.OnesCount64(w)
	}
	return n
}

// common returns the number of CPUs in both sets.
func (s *CPUSet) common(o *CPUSet) (n int) {
	for i, w := range s {
		if w &= o[i]; w != 0 {
			n += bits.OnesCount64(w)
		}
	}
	return n
}
