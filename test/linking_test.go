package test

import "testing"

// The linker of the driver API, each corner in a process of its own.
func TestLinking(t *testing.T) {
	h := startHost(t, oneDomain)
	linking := program(t, "linking")
	for _, part := range []string{"plain", "variables", "errors", "arguments", "files", "no-images", "afterwards"} {
		t.Run(part, func(t *testing.T) { succeed(t, h.guest("one", linking, part)) })
	}
}
