package region

import (
	"sync/atomic"
	"unsafe"
)

// word32 returns the aligned 32-bit word at off. It is safe because control areas are page-aligned mappings,
// and every offset is a constant above or 64-byte aligned.
func word32(mem []byte, off int) *atomic.Uint32 {
	return (*atomic.Uint32)(unsafe.Pointer(&mem[off : off+4 : off+4][0]))
}

// word64 is the aligned 64-bit word at off; see word32.
func word64(mem []byte, off int) *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Pointer(&mem[off : off+8 : off+8][0]))
}
