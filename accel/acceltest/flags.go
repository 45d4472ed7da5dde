package acceltest

import (
	"testing"

	"pegasus/cuda"
)

// testFlags checks that contexts can be created with each of the flags that a guest may pass, whichever component
// implements the flag.
func testFlags(t *testing.T, b *bench) {
	b.start(Options{})
	for _, flags := range []uint32{0, 1, 2, 4, 8, 16, 128, 4 | 8 | 16 | 128} {
		c, r := b.dev.NewContext(flags)
		if r != cuda.Success {
			t.Fatalf("flags %#x: %v", flags, r)
		}
		gone := make(chan struct{})
		c.Destroy(func() { close(gone) })
		<-gone
	}
}
