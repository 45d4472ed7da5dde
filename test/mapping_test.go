package test

import "testing"

// Properties of memory that programs map themselves, of stream memory waits, and of batched calls, each in a process of
// its own.
func TestMapping(t *testing.T) {
	t.Parallel()
	h := startHost(t, oneDomain)
	mapping := program(t, "mapping")
	for _, part := range []string{"seam", "reading", "lessened", "torn", "wrong", "given", "many", "words", "batches", "contexts", "asked", "ephemeral", "capturing", "starved", "behind", "apart"} {
		t.Run(part, func(t *testing.T) { succeed(t, h.guest("one", mapping, part)) })
	}
}
