package soft

import "golang.org/x/sys/cpu"

// movsb copies n bytes in the processor's own way.
//
//go:noescape
func movsb(dst, src *byte, n uint64)

// movsbLeast is from where on movsb is at least as fast as copy.
const movsbLeast = 4 << 10

// move copies src to dst, which are of one length. The runtime's copy writes past
// the caches from 1 MiB on, as suits memory that nobody reads soon, and is slower
// by a third where source and target are in the caches; what the processor does
// by itself for a string of bytes is as fast as any copy at all sizes.
func move(dst, src []byte) {
	if cpu.X86.HasERMS && len(dst) >= movsbLeast {
		movsb(&dst[0], &src[0], uint64(len(dst)))
		return
	}
	copy(dst, src)
}
