package test

import (
	"strings"
	"testing"
)

// The linker of the driver API, each corner in a process of its own.
func TestLinking(t *testing.T) {
	h := startHost(t, oneDomain)
	linking := program(t, "linking")
	for _, part := range []string{"plain", "variables", "errors", "arguments", "files", "afterwards"} {
		t.Run(part, func(t *testing.T) { succeed(t, h.guest("one", linking, part)) })
	}
	text, err := h.guest("one", linking, "no-images").CombinedOutput()
	if reason := "module not loaded (200): the image is damaged"; err != nil || !strings.Contains(string(text), reason) {
		t.Errorf("%v, no %q in %s", err, reason, text)
	}
}
