// Package sim is a deterministic simulator of domains that share accelerators.
//
// It drives the schedulers that the daemon drives (policies.Scheduler), with the
// same events in the same order, round a model of everything else: physical CPUs
// under Xen's credit scheduler (cpu.go), programs that compute, call and wait
// (program.go, thread.go), a backend that submits calls while a gate is open
// (domain.go, host.go), accelerators that run one request at a time per engine and
// pay for changing contexts (gpu.go). Time is whole nanoseconds, chance comes from
// one stream per entity, and a run is one goroutine: the same scenario and seed give
// the same run everywhere, and its hash tells whether they did.
//
// A scenario is a TOML file (scenario.go): accelerators, domains, workloads, the
// policies to compare, and what shall come of it (row.go). Those in scenarios/ are
// the experiments of the papers that the policies are from.
package sim

//go:generate go run ./internal/gentimelines ../docs/zz_policies.svg
