package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// measure are the steps that measure the speed of programs, and the shares of competing domains.
var measure = []step{
	{"rates", "launches, allocations, copies", 2 * time.Minute, bothWays("programs/rates")},
	{"kernels", "whole programs", 2 * time.Minute, kernels},
	{"gemm", "matrix products by cuBLAS", time.Minute, python("gemm.py")},
	{"shares", "two and four domains under each policy: parts of the time beside parts of the credits", 3 * time.Minute, shares},
	{"theft", "a domain that tries to get more than its half, under each policy: the part that the other domain keeps", 4 * time.Minute, thefts},
	{"latency", "a request of 1 ms in 10 ms beside kernels of 25 ms", 2 * time.Minute, latency},
	{"training", "PyTorch: training steps", 90 * time.Second, python("torch_train.py", "--measure")},
	{"decoding", "PyTorch: decoding", 90 * time.Second, python("torch_decode.py", "--measure")},
}

// report is the output of a benchmark program.
type report struct {
	PerSecond float64 `json:"launches_per_s"`
	P50       float64 `json:"round_p50_ns"`
	P99       float64 `json:"round_p99_ns"`
	Steps     float64 `json:"steps"`
}

func reported(out []byte) (r report, err error) {
	err = json.Unmarshal([]byte(last(out)), &r)
	return r, err
}

// kernels measures the benchmark programs both ways.
func kernels(ctx context.Context, v *visit) (any, error) {
	d, err := v.start(config{})
	if err != nil {
		return nil, err
	}
	defer d.stop()
	f := findings{Other: byPegasus}
	for _, name := range []string{"vectoradd", "matmul", "reduction", "nbody", "walsh"} {
		args := []string{"--seconds", v.size(2, 1), "--queue", "4", "--json", "--quiet", "--no-check"}
		out, err := v.output(ctx, v.program(ctx, v.environment(), v.in("bench", name), args...))
		if err != nil {
			return f, err
		}
		without, err := reported(out)
		if err != nil {
			return f, err
		}
		if out, err = v.output(ctx, d.guest(ctx, "visit", v.in("bench", name), args...)); err != nil {
			return f, fmt.Errorf("by Pegasus: %w", err)
		}
		by, err := reported(out)
		if err != nil {
			return f, err
		}
		f.Figures = append(f.Figures, figure{Name: name + ", rounds a second", Unit: "1/s", Value: without.PerSecond, Other: &by.PerSecond})
	}
	return f, nil
}
