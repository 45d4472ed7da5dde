package test

import (
	"sync/atomic"
	"unsafe"
)

// segmentWord returns the aligned 64-bit word at off, which is valid while the segment, a page-aligned mapping, stays
// mapped.
func segmentWord(mem []byte, off uint64) *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Pointer(&mem[off&^7 : off&^7+8][0]))
}
