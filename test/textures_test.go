package test

import "testing"

// Textures and surfaces behave through the driver API as kernels and programs expect.
func TestTextures(t *testing.T) {
	h := startHost(t, oneDomain)
	textures := program(t, "textures")
	for _, part := range []string{
		"linear", "array", "rebound", "surface-reference", "names", "unbound", "shapes", "surface-objects", "surface-gone", "gone", "handles",
	} {
		t.Run(part, func(t *testing.T) { succeed(t, h.guest("one", textures, part)) })
	}
}
