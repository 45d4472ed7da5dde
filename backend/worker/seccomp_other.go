//go:build !amd64

package worker

var allowedHere []uint32

var allowedDriverHere []uint32
