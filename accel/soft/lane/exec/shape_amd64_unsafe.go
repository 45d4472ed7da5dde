//go:build amd64

package exec

import (
	"unsafe"

	"pegasus/accel/soft/lane/arith"
)

// lookVector determines the shape of chunks of addresses, or returns false if it can't.
func lookVector(s *shape, p unsafe.Pointer, step, chunks int, scale uint64) bool {
	switch {
	case arith.VectorLevel == 0 || step == 0:
		return false
	case step == 4:
		look32AVX2(s, p, chunks, scale)
		s.low, s.high, s.bits = s.low*scale, s.high*scale, s.bits*scale
	case arith.VectorLevel == 2:
		if s.line = line64AVX512(s, p, chunks); !s.line {
			look64AVX512(s, p, chunks)
		}
	default:
		look64AVX2(s, p, chunks)
	}
	return true
}

//go:noescape
func look32AVX2(s *shape, p unsafe.Pointer, chunks int, scale uint64)

//go:noescape
func look64AVX2(s *shape, p unsafe.Pointer, chunks int)

//go:noescape
func line64AVX512(s *shape, p unsafe.Pointer, chunks int) bool

// sameChunks reports whether in each chunk of a row the differences to the first lane's number are the same. The
// compiler's processors have AVX-512.
func sameChunks(p unsafe.Pointer, differences *[chunk]uint32, chunks int) bool {
	return sameChunksAVX512(p, differences, chunks)
}

//go:noescape
func sameChunksAVX512(p unsafe.Pointer, differences *[chunk]uint32, chunks int) bool

//go:noescape
func look64AVX512(s *shape, p unsafe.Pointer, chunks int)

// Movers by the size of the element; rows have 64 bits a lane for 8 bytes, else 32.
var (
	vectorLoads  = [9]chunkMover{1: load8AVX2, 2: load16AVX2, 4: load32AVX2, 8: load64AVX2}
	vectorStores = [9]chunkMover{1: store8AVX2, 2: store16AVX2, 4: store32AVX2, 8: store64AVX2}
)

//go:noescape
func load8AVX2(row, mem unsafe.Pointer, off uint64, runs *addressRun, chunks int) int

//go:noescape
func load16AVX2(row, mem unsafe.Pointer, off uint64, runs *addressRun, chunks int) int

//go:noescape
func load32AVX2(row, mem unsafe.Pointer, off uint64, runs *addressRun, chunks int) int

//go:noescape
func load64AVX2(row, mem unsafe.Pointer, off uint64, runs *addressRun, chunks int) int

//go:noescape
func store8AVX2(row, mem unsafe.Pointer, off uint64, runs *addressRun, chunks int) int

//go:noescape
func store16AVX2(row, mem unsafe.Pointer, off uint64, runs *addressRun, chunks int) int

//go:noescape
func store32AVX2(row, mem unsafe.Pointer, off uint64, runs *addressRun, chunks int) int

//go:noescape
func store64AVX2(row, mem unsafe.Pointer, off uint64, runs *addressRun, chunks int) int
