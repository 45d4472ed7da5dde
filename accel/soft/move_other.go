//go:build !amd64

package soft

// move copies src to dst, which are of one length.
func move(dst, src []byte) { copy(dst, src) }
