package lane

import "golang.org/x/sys/cpu"

// useAVX2 says whether the vector kernels can be used. Tests switch it off to
// compare with the plain loops.
var useAVX2 = cpu.X86.HasAVX2 && cpu.X86.HasFMA
