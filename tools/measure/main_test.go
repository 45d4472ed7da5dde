package main

import (
	"strings"
	"testing"
)

const output = `goos: linux
BenchmarkDecision/rr/paper/8-2          	 1000	       99.0 ns/op	       150 p99-ns	       0 B/op	       0 allocs/op
BenchmarkDecision/accc/production/64-2  	 1000	      210.5 ns/op	      6000 p99-ns	       0 B/op	       0 allocs/op
PASS
`

func TestDecisions(t *testing.T) {
	figures, err := parseDecisions(output)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	ratio, peer := 0.5, 10.0
	figures = append(figures, Figure{Name: "copy to host, 1 MiB, pinned", Value: 5, Unit: "GB/s", Peer: &peer, Ratio: &ratio})
	if err := table(&b, figures); err != nil {
		t.Fatal(err)
	}
	want := `what value unit peer ratio target
decision, accc, 64 domains, mean 210.5 ns
decision, accc, 64 domains, p99 6000 ns ≤ 5000: missed
decision, accc, 64 domains, allocations 0 count ≤ 0: met
copy to host, 1 MiB, pinned 5 GB/s 10 0.5 ratio ≥ 0.95: missed
`
	var got strings.Builder
	for line := range strings.Lines(b.String()) {
		got.WriteString(strings.Join(strings.Fields(line), " ") + "\n")
	}
	if got.String() != want {
		t.Errorf("got\n%swant\n%s", got.String(), want)
	}
	if _, err := parseDecisions("PASS\n"); err == nil {
		t.Error("took an empty output")
	}
}
