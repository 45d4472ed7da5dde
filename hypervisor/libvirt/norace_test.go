//go:build !race

package libvirt

const raced = false
