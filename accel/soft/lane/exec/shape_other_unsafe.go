//go:build !amd64

package exec

import "unsafe"

func lookVector(*shape, unsafe.Pointer, int, int, uint64) bool { return false }

var vectorLoads, vectorStores [9]chunkMover

func sameChunks(unsafe.Pointer, *[chunk]uint32, int) bool { return false }
