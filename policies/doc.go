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
//	none  everyone may always submit; first come, first served
//	rr    one domain after the other, windows of equal length
//	accc  one after the other, windows in proportion to accelerator credits
//	xc    the same in proportion to CPU credits
//	slaf  xc, and more for those who miss their objective
//	augc, cosched
//	      tick by tick, by balances and by whose vCPUs run
//	fifo  one after the other, request by request (Gdev)
//	lag   the one that is furthest behind, measured use over credits
//
// fifo decides request by request (queue.go): one domain at a time is lent so many,
// and groups of domains may share a turn. lag lends budgets of time.
//
// rr, accc and xc differ in one function, a domain's share; newWindows makes them,
// in one of two modes. Paper (ring.go) is the algorithm as published: whole ticks for
// everyone, idle or not, and no look at what was used. Production (fair.go) is
// deficit round robin over those with work: exact shares of measured time. slaf
// lengthens their windows. augc and cosched are a frame (coordinated.go) with
// different choices.
//
// To add a policy, write its file and name its constructor in table.go. What only
// some policies can or need is an interface of its own, as Explainer is.
package policies
