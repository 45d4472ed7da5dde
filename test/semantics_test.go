package test

import "testing"

// Corners of the API that unmodified programs rely on, each in a process of its own.
func TestSemantics(t *testing.T) {
	t.Parallel()
	h := startHost(t, oneDomain)
	semantics := program(t, "semantics")
	for _, part := range []string{
		"primary", "elsewhere", "neighbours", "permission", "farewell", "leaving", "across", "crowded", "empty-extra", "bereft-of-streams", "few-files", "early", "ready-beside", "ready-own", "captured-and-gone", "reborn", "stopwatch", "in-order", "ready",
		"primary-again", "failed-event", "throng", "many-parameters", "refused", "many-kernels", "left-out", "healthy", "overlap", "beside-delays",
	} {
		t.Run(part, func(t *testing.T) { succeed(t, h.guest("one", semantics, part)) })
	}
}
