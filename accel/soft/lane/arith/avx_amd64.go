package arith

import "golang.org/x/sys/cpu"

// detectVectorLevel returns the vector support of the processor: 1 for AVX2, 2 for the AVX-512 extensions since Ice Lake and
// Zen 4.
func detectVectorLevel() int {
	switch {
	case !cpu.X86.HasAVX2 || !cpu.X86.HasFMA:
		return 0
	case cpu.X86.HasAVX512F && cpu.X86.HasAVX512BW && cpu.X86.HasAVX512DQ && cpu.X86.HasAVX512VL && cpu.X86.HasAVX512CD && cpu.X86.HasAVX512VPOPCNTDQ:
		return 2
	}
	return 1
}
