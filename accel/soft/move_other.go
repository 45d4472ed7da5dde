//go:build !amd64

package soft

// move copies src to dst, which have the same length.
func move(dst, src []byte) { copy(dst, src) }
