package engine

import (
	"testing"
	"unsafe"
)

// Tests of other packages overwrite the page as a worker would that hostile code has taken over.
func TestLayout(t *testing.T) {
	var l enginesLayout
	if at := unsafe.Offsetof(l.tokens) + unsafe.Offsetof(l.tokens[0].held) + unsafe.Offsetof(l.tokens[0].held.ns); at != 33032 {
		t.Errorf("the time for which the first engine was held is at %d: test/hostile_pages_test.go has another place", at)
	}
	if at := unsafe.Offsetof(l.tokens) % 64; at != 0 {
		t.Errorf("queues begin %d bytes into a line", at)
	}
	if at := unsafe.Offsetof(l.grants) % 64; at != 0 {
		t.Errorf("grants begin %d bytes into a line", at)
	}
}
