package callbuf

import (
	"encoding/binary"
	"sync/atomic"
	"unsafe"
)

// word32 returns the aligned 32-bit word at off. It is safe because segments are page-aligned mappings, every
// offset used is a multiple of four that was checked against the layout, and the mapping outlives the Host or
// Guest.
func word32(mem []byte, off uint64) *atomic.Uint32 {
	return (*atomic.Uint32)(unsafe.Pointer(&mem[off : off+4 : off+4][0]))
}

// word64 is the aligned 64-bit word at off; see word32.
func word64(mem []byte, off uint64) *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Pointer(&mem[off : off+8 : off+8][0]))
}

var le = binary.LittleEndian
