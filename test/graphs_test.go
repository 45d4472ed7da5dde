package test

import (
	"os"
	"path/filepath"
	"testing"
)

var graphParts = []string{"build", "edges", "pageable", "capture", "refusals", "update", "events", "order", "objects", "gone"}

// Graphs and captures, each part in a process of its own.
func TestGraphs(t *testing.T) {
	h := startHost(t, oneDomain)
	graphs := program(t, "graphs")
	for _, part := range graphParts {
		t.Run(part, func(t *testing.T) { succeed(t, h.guest("one", graphs, part)) })
	}
	t.Run("dot", func(t *testing.T) { succeed(t, h.guest("one", graphs, "dot", filepath.Join(t.TempDir(), "graph.dot"))) })
}

// The same with the library that looks at each of its own accesses.
func TestGraphsSanitized(t *testing.T) {
	h := startHost(t, oneDomain)
	graphs := sanitized(t, "graphs")
	for _, part := range graphParts {
		t.Run(part, func(t *testing.T) {
			cmd := h.guest("one", graphs, part)
			cmd.Env = append(os.Environ(), sanitizedEnv(t)...)
			succeed(t, cmd)
		})
	}
}

// The same on a GPU, which our own library is to the worker.
func TestGraphsOnNVIDIA(t *testing.T) {
	h := startNVIDIA(t, oneDomain)
	graphs := program(t, "graphs")
	for _, part := range graphParts {
		t.Run(part, func(t *testing.T) { succeed(t, h.guest("one", graphs, part)) })
	}
}
