//go:build race

package libvirt

// raced reports whether the race detector is on.
const raced = true
