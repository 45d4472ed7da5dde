package main

import "fmt"

// target is a bound on a figure, or on its ratio to the peer.
type target struct {
	ratio   bool
	atLeast bool
	bound   float64
}

// targets are the project's goals on an idle machine with two processors or more.
var targets = map[string]target{
	"synchronous call, both sides polling, p50":        {bound: 600},
	"synchronous call, both sides polling, p99":        {bound: 2000},
	"unix socket RPC over synchronous call, p50":       {bound: 20, atLeast: true},
	"synchronous call, poller parked, 1 ms pause, p50": {bound: 10_000},
	"synchronous call, poller parked, 5 ms pause, p50": {bound: 10_000},
	"queued calls on one ring":                         {bound: 10, atLeast: true},

	"copy to device, 1 MiB, pinned":    {bound: 0.95, atLeast: true, ratio: true},
	"copy to host, 1 MiB, pinned":      {bound: 0.95, atLeast: true, ratio: true},
	"copy to device, 16 MiB, pinned":   {bound: 0.95, atLeast: true, ratio: true},
	"copy to host, 16 MiB, pinned":     {bound: 0.95, atLeast: true, ratio: true},
	"copy to device, 64 MiB, pinned":   {bound: 0.95, atLeast: true, ratio: true},
	"copy to host, 64 MiB, pinned":     {bound: 0.95, atLeast: true, ratio: true},
	"copy to device, 1 MiB, pageable":  {bound: 0.9, atLeast: true, ratio: true},
	"copy to host, 1 MiB, pageable":    {bound: 0.9, atLeast: true, ratio: true},
	"copy to device, 16 MiB, pageable": {bound: 0.9, atLeast: true, ratio: true},
	"copy to host, 16 MiB, pageable":   {bound: 0.9, atLeast: true, ratio: true},
	"copy to device, 64 MiB, pageable": {bound: 0.9, atLeast: true, ratio: true},
	"copy to host, 64 MiB, pageable":   {bound: 0.9, atLeast: true, ratio: true},

	"copy to device, 1 MiB, pageable, one processor":  {bound: 0.45, atLeast: true, ratio: true},
	"copy to host, 1 MiB, pageable, one processor":    {bound: 0.45, atLeast: true, ratio: true},
	"copy to device, 16 MiB, pageable, one processor": {bound: 0.45, atLeast: true, ratio: true},
	"copy to host, 16 MiB, pageable, one processor":   {bound: 0.45, atLeast: true, ratio: true},
	"copy to device, 64 MiB, pageable, one processor": {bound: 0.45, atLeast: true, ratio: true},
	"copy to host, 64 MiB, pageable, one processor":   {bound: 0.45, atLeast: true, ratio: true},

	"idle guest, worker and daemon": {bound: 1},

	"three watchers of the daemon":      {bound: 3},
	"scrape beside other watchers, p99": {bound: 50},

	"overhead of scheduling, requests of 1 ms, queued":            {bound: 1},
	"overhead of scheduling, requests of 1 ms, each waited for":   {bound: 1},
	"overhead of scheduling, requests of 100 µs, queued":          {bound: 3},
	"overhead of scheduling, requests of 100 µs, each waited for": {bound: 3},

	"BlackScholes, gcc":                           {bound: 0.7, ratio: true},
	"tiled matmul, gcc":                           {bound: 2.5, ratio: true},
	"fast Walsh transform, gcc":                   {bound: 1.5, ratio: true},
	"reduction, gcc":                              {bound: 1.5, ratio: true},
	"histogram, gcc":                              {bound: 1.5, ratio: true},
	"n-body, gcc":                                 {bound: 1.5, ratio: true},
	"kernels over pocl's, geometric mean":         {bound: 1},
	"two cores over one, geometric mean":          {bound: 1.8, atLeast: true},
	"first launch, blackscholes":                  {bound: 1},
	"first launch, matmul":                        {bound: 1},
	"first launch, walsh":                         {bound: 1},
	"first launch, reduction":                     {bound: 1},
	"first launch, histogram":                     {bound: 1},
	"first launch, nbody":                         {bound: 1},
	"vf_scale_cuda's module, ready":               {bound: 50},
	"scale_cuda, bilinear, 1920x1080 to 1280x720": {bound: 100},
	"scale_cuda, bilinear, 1280x720 to 1920x1080": {bound: 100},

	"decision, accc, 8 domains, p99":             {bound: 1000},
	"decision, accc, 64 domains, p99":            {bound: 5000},
	"decision, accc, 10000 domains, p99":         {bound: 10_000},
	"decision, accc, 8 domains, allocations":     {bound: 0},
	"decision, accc, 64 domains, allocations":    {bound: 0},
	"decision, accc, 10000 domains, allocations": {bound: 0},
}

// verdict returns a figure's target and whether the figure meets it; "" without a target.
func verdict(f Figure) string {
	t, ok := targets[f.Name]
	if !ok {
		return ""
	}
	value, what, sign := f.Value, "", "≤"
	if t.ratio {
		what = "ratio "
		if f.Ratio == nil {
			return ""
		}
		value = *f.Ratio
	}
	met := value <= t.bound
	if t.atLeast {
		met, sign = value >= t.bound, "≥"
	}
	outcome := "met"
	if !met {
		outcome = "missed"
	}
	return fmt.Sprintf("%s%s %g: %s", what, sign, t.bound, outcome)
}
