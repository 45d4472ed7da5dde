package test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

var graphParts = []string{"build", "edges", "pageable", "capture", "refusals", "update", "child", "events", "order", "objects", "kept", "crowd", "race", "gone", "memory", "memorycapture"}

// Graphs and captures, each part in a process of its own.
func TestGraphs(t *testing.T) {
	h := startHost(t, oneDomain)
	graphs := program(t, "graphs")
	for _, part := range graphParts {
		t.Run(part, func(t *testing.T) { succeed(t, h.guest("one", graphs, part)) })
	}
	t.Run("dot", func(t *testing.T) { succeed(t, h.guest("one", graphs, "dot", filepath.Join(t.TempDir(), "graph.dot"))) })
}

// As above with the library that checks each of its own accesses.
func TestGraphsSanitized(t *testing.T) {
	t.Parallel()
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

// As above on a GPU, which the worker takes Pegasus's own library for.
func TestGraphsOnNVIDIA(t *testing.T) {
	t.Parallel()
	h := startNVIDIA(t, oneDomain)
	graphs := program(t, "graphs")
	for _, part := range graphParts {
		t.Run(part, func(t *testing.T) { succeed(t, h.guest("one", graphs, part)) })
	}
}

// A domain with one long graph as its work has its share and no more; and with round-robin requests others don't wait
// for the graph's end.
func TestLongGraphsShare(t *testing.T) {
	inParallel(t)
	for policy, least := range map[string]float64{"accc": 60, "prt": 0.05} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			sharers := []sharer{{"long", 256, 0}, {"large", 1024, 5}}
			h := startHost(t, shareConfig(policy, "production", sharers))
			background(t, h.guest("long", program(t, "graphs"), "long"))
			h.run(sharers[1])
			h.await(sharers)
			steadily(t, func() error {
				if got := h.measure(6 * time.Second); got["long"] < 5 || got["large"] < least {
					return fmt.Errorf("the domain with a graph gets %.2f %%, the other %.2f %%, want at least 5 %% and %.2f %%", got["long"], got["large"], least)
				}
				return nil
			})
		})
	}
}
