// Package sim is a deterministic simulator of domains that share accelerators.
//
// It drives the same schedulers as the daemon (policies.Scheduler), with the same events in the same order,
// and models everything else: physical CPUs under Xen's credit scheduler (cpu.go), programs that compute,
// call and wait (program.go, thread.go), a backend that submits calls while a gate is open (domain.go,
// backend.go), the daemon's scheduler loops (host.go), accelerators that run one request at a time per engine and
// spend time on changing contexts (gpu.go). They share a clock (event.go); sim.go connects them. Time is whole
// nanoseconds, randomness comes from one stream per entity, and a run is one
// goroutine: the same scenario and seed give the same run everywhere, and equal hashes show that they did.
//
// Files with names that begin with paper_ hold models of single mechanisms of papers, which no policy uses.
//
// A scenario is a TOML file (scenario.go): accelerators, domains, workloads, the policies to compare, and the
// expected results (row.go). Those in scenarios/ are the experiments of the papers that the policies are
// from.
//
// Callers: `pegasus sim`, sim/report, and cmd/compare, which compares a run with a measurement.
//
// Trust boundary: scenarios and traces are the user's own files. They are checked, and every mistake is an
// error.
package sim

//go:generate go run ./internal/gentimelines ../docs/zz_policies.svg
