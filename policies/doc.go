// Package policies decides which domain may submit work to an accelerator next, and for how long.
//
// A Scheduler drives one accelerator. Its input is events (a domain attached, has work, has no work, used
// some accelerator time); its output is the actions that the domains' gates must take. Between them is a
// Policy, a state machine without clock or goroutine: the daemon and the simulator drive the same code, and
// the same events produce the same decisions. Scheduler and policies trust their driver, which validates the
// values that guests report.
//
// A policy lends leases of the gate: the right to submit. A GPU does not preempt, so submitted work runs to its
// end and can overlap the next lease; the software accelerator stops kernels instead. Specs describes the
// policies; docs/policies.md has their table.
//
// fifo, credit, band, drr, prt and ht decide request by request. They share a frame (queue.go) with three slots:
// reserves (reserve.go), a share, and an order of a unit's domains (unit.go). Refusal names the slot that
// refuses a request. lag lends budgets of time.
//
// rr, accc and xc differ in one function, a domain's share; newWindows makes them by fair.go, deficit round robin over
// the domains with work: exact shares of measured time. slaf lengthens their windows. augc and cosched share a frame
// (coordinated.go, over ticks.go) and differ in the choice function.
//
// Every policy has two modes. Production corrects overruns and distributes idle time; paper follows the published
// algorithm, for comparisons with the papers. The published algorithms stand apart, in files named paper_*.go:
// see paper.go.
//
// Accounts of time belong to domains, attached or not: see Ledger. The Scheduler keeps a domain that has left
// with a debt as an absent member.
//
// # Adding a policy
//
// A policy is one file. It registers a Spec (var _ = register(Spec{…})) with the name, the phrases of the
// documents, the kind of share, the parameters and the constructor, and declares the parameters that no other
// policy has, each with its key, default, range and meaning. The configuration, the simulator, the commands and the
// tests go through the Specs; make generate writes the policy into docs/policies.md, its picture and
// configs/examples/full.toml. A capability that only some policies have or need is an interface of its own, such as
// Explainer.
//
// Callers: the daemon's scheduler loop (backend), the simulator (sim), and the pegasus command, which replays
// traces. Each Scheduler is called by one goroutine at a time.
//
// Trust boundary: none within the package. Its driver validates the values that guests report, as above.
package policies

//go:generate go run ./internal/gendocs ..
