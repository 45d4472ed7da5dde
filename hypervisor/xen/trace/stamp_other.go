//go:build !amd64

package trace

// stamp isn't implemented on other machines; only amd64 is supported under Xen.
func stamp() uint64 { return 0 }
