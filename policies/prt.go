package policies

import "time"

// newPRT returns TimeGraph's scheduling by priority: one request at a time is on the accelerator, and when it
// has ended the most urgent waiting one follows. Domains that were promised throughput are scheduled by HT.
// Neither keeps an account of time.
func newPRT(o Options) Policy {
	return newRuns("prt", o, func(c *tenant) int {
		if c.domain.Promise.Throughput {
			return run(c, o)
		}
		return 1
	})
}

// newHT returns TimeGraph's scheduling for throughput: the requests of a domain follow one another without a
// new decision until it has none, or a more urgent domain has one. As published a domain could keep the
// accelerator from its equals for ever: here a run is limited.
func newHT(o Options) Policy {
	return newRuns("ht", o, func(c *tenant) int { return run(c, o) })
}

func newRuns(name string, o Options, run func(*tenant) int) Policy {
	q := newCommonQueue(name, o, run, byPriority)
	q.longest = o.RunTime
	return q
}

// run returns how many requests c may submit one after the other.
func run(c *tenant, o Options) int {
	return atMost(o.RunRequests, o.RunTime, c.request().Predicted)
}

// atMost returns how many requests of a length fit into a time, at least one and at most n.
func atMost(n int, span, each time.Duration) int {
	if each <= 0 {
		return n
	}
	return min(int(max(span/each, 1)), n)
}

// everyone is the share slot of a queue without shares: all domains belong to one unit.
type everyone struct {
	unit *unit
	run  func(first *tenant) int // number of requests that it may submit
}

func (e *everyone) changed(Time, *unit)             {}
func (e *everyone) left(Time, *unit)                {}
func (e *everyone) waits(Time, *unit)               {}
func (e *everyone) rests(Time, *unit)               {}
func (e *everyone) used(Time, *unit, time.Duration) {}
func (e *everyone) done(Time, *unit)                {}

func (e *everyone) next(Time) (*unit, int, Time) {
	c := e.unit.first()
	if c == nil {
		return nil, 0, Forever
	}
	return e.unit, e.run(c), Forever
}

func (e *everyone) says(*unit) string { return "" }
