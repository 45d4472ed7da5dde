//go:build !amd64

package confine

var allowedHere []uint32

var allowedDriverHere []uint32
