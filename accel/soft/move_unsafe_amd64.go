package soft

import (
	"unsafe"

	"golang.org/x/sys/cpu"
)

// movsb copies n bytes in the processor's own way.
//
//go:noescape
func movsb(dst, src *byte, n uint64)

// movsbLeast is the size from which movsb is at least as fast as copy.
const movsbLeast = 4 << 10

// move copies src to dst, which have the same length. From 1 MiB on the runtime's copy uses non-temporal stores, which
// suits memory that is not read soon, and is slower by a third when source and target are in the caches; the
// processor's string move is as fast as any copy at all sizes, except when addresses alias.
func move(dst, src []byte) {
	switch {
	case len(dst) < movsbLeast || !cpu.X86.HasERMS:
		copy(dst, src)
	case aliases(dst, src):
		for end := len(dst); end > 0; {
			at := (end - 1) &^ (aliasPiece - 1)
			copy(dst[at:end], src[at:end])
			end = at
		}
	default:
		movsb(&dst[0], &src[0], uint64(len(dst)))
	}
}

// aliasPiece is the size that copy moves in a loop of vectors, within the caches.
const aliasPiece = 2 << 10

// aliases reports whether dst is less than 32 bytes ahead of src within a page: AMD's
// Zen 3 then moves a string a byte at a time, at a tenth of the speed. Copies in
// pieces are as fast as ever when the last goes first.
func aliases(dst, src []byte) bool {
	ahead := uintptr(unsafe.Pointer(&dst[0])) - uintptr(unsafe.Pointer(&src[0]))
	return ahead%4096-1 < 31
}
