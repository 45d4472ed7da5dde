package test

import "testing"

// What programs count on of memory that they map themselves, of words that streams wait for, and of
// calls that are many of another, each in a process of its own.
func TestMapping(t *testing.T) {
	h := startHost(t, oneDomain)
	mapping := program(t, "mapping")
	for _, part := range []string{"seam", "reading", "torn", "wrong", "given", "many", "words", "batches", "contexts", "asked", "ephemeral", "capturing", "starved", "behind", "apart"} {
		t.Run(part, func(t *testing.T) { succeed(t, h.guest("one", mapping, part)) })
	}
}
