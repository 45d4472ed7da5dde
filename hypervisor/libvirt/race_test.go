//go:build race

package libvirt

// raced is whether the race detector watches.
const raced = true
