package main

import (
	"fmt"
	"strconv"
	"strings"
)

// measures maps the units of Go benchmarks to the names of their results.
var measures = map[string]struct{ what, unit string }{
	"ns/op":     {"mean", "ns"},
	"p99-ns":    {"p99", "ns"},
	"allocs/op": {"allocations", "count"},
}

// parseDecisions parses the output of BenchmarkDecision/POLICY/MODE/DOMAINS; only production mode counts.
func parseDecisions(text string) ([]Figure, error) {
	var figures []Figure
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) < 4 || !strings.HasPrefix(words[0], "BenchmarkDecision/") {
			continue
		}
		path := strings.Split(words[0], "/")
		if len(path) != 4 || path[2] != "production" {
			continue
		}
		domains, _, _ := strings.Cut(path[3], "-") // without the number of processors
		for i := 2; i+1 < len(words); i += 2 {
			m, ok := measures[words[i+1]]
			if !ok {
				continue
			}
			value, err := strconv.ParseFloat(words[i], 64)
			if err != nil {
				return nil, fmt.Errorf("%q: %w", line, err)
			}
			name := fmt.Sprintf("decision, %s, %s domains, %s", path[1], domains, m.what)
			figures = append(figures, Figure{Name: name, Value: value, Unit: m.unit})
		}
	}
	if len(figures) == 0 {
		return nil, fmt.Errorf("no figures in\n%s", text)
	}
	return figures, nil
}
