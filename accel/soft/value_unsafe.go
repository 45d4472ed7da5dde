package soft

import (
	"sync/atomic"
	"unsafe"
)

// loadWord reads a word of 4 or 8 bytes in one load. Device memory is aligned as addresses are.
func loadWord(mem []byte) uint64 {
	p := unsafe.Pointer(unsafe.SliceData(mem))
	if len(mem) == 4 {
		return uint64(atomic.LoadUint32((*uint32)(p)))
	}
	return atomic.LoadUint64((*uint64)(p))
}
