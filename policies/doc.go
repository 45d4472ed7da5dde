// Package policies says who may submit work to an accelerator next, and for how
// long.
//
// A Scheduler drives one accelerator. Events go in (a domain came, has work, has
// none, used so much time), and what the domains' gates must do comes out. In
// between sits a Policy, a state machine that knows neither clock nor goroutine:
// the daemon and a simulator drive the same code, and the same events give the
// same decisions. Both trust their driver, which checks what guests say.
//
// What a policy lends is a lease of the gate: the right to submit. Accelerators
// do not preempt, so what was submitted ends when it ends, overlapping the next
// lease. The policies:
//
//	none     everyone may always submit; first come, first served
//	rr       one domain after the other, windows of equal length
//	accc     one after the other, windows in proportion to accelerator credits
//	xc       the same, in proportion to CPU credits
//	slaf     xc, and more for those who miss their objective
//	augc     tick by tick, by balances and the CPU credit of those whose vCPUs run
//	cosched  tick by tick, by balances of those whose vCPUs run
//	fifo     one after the other, request by request (Gdev)
//	credit   the first in the list; who has used up its credit goes to its end (Gdev)
//	band     credit, but who used more than its part is held back for others (Gdev)
//	drr      rounds of quanta, with costs estimated (GERM)
//	prt      the most urgent one, request by request (TimeGraph)
//	ht       the same, in runs of requests (TimeGraph)
//	lag      the one that is furthest behind, measured use over credits
//
// From fifo to ht they decide request by request. They are a frame (queue.go) with
// three slots: reserves (reserve.go), a share and an order of a unit's domains
// (unit.go). Refusal names the slot that refuses a request. lag lends budgets of
// time.
//
// rr, accc and xc differ in one function, a domain's share; newWindows makes them,
// in one of two modes. Paper (ring.go) is the algorithm as published: whole ticks for
// everyone, idle or not, and no look at what was used. Production (fair.go) is
// deficit round robin over those with work: exact shares of measured time. slaf
// lengthens their windows. augc and cosched are a frame (coordinated.go) with
// different choices.
//
// Accounts of time belong to domains, present or not: see Ledger. The Scheduler keeps a
// domain that has left and owes something as an absent member.
//
// To add a policy, write its file and name its constructor in table.go. What only
// some policies can or need is an interface of its own, as Explainer is.
package policies
