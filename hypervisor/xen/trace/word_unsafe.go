package trace

import (
	"sync/atomic"
	"unsafe"
)

// word returns a word of shared memory. The memory is mapped and page-aligned, so all words at multiples of four are
// aligned.
func word(mem []byte, at int) *atomic.Uint32 {
	return (*atomic.Uint32)(unsafe.Pointer(&mem[at : at+4][0]))
}
