package privcmd

import "unsafe"

// addressOf returns the address of memory outside Go's heap, which doesn't move.
func addressOf(mem []byte) uint64 { return uint64(uintptr(unsafe.Pointer(&mem[0]))) }
