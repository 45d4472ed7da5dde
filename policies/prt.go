package policies

import "time"

var _ = register(Spec{
	Name: "prt", Rank: 12, New: newPRT, Lends: Requests, Params: []*Param{runRequests.Param, runTime.Param},
	Serves: "the most urgent domain, request by request",
	Part:   "as much as it requests, within its reserve",
})

var _ = register(Spec{
	Name: "ht", Rank: 13, New: newHT, Lends: Requests, Params: []*Param{runRequests.Param, runTime.Param},
	Serves: "the most urgent domain, in runs of requests",
	Part:   "as much as it requests",
})

var (
	runRequests = newCount(Param{Key: "run_requests", Doc: "requests of a run, at most; under prt: of a domain that was promised throughput"}, 8, 1, 1024)
	runTime     = newDuration(Param{Key: "run_time", Doc: "predicted time of a run, at most"}, 10*ms, ms/10, time.Second)
)

// newPRT returns TimeGraph's scheduling by priority: one request at a time is on the accelerator, and when it
// has ended the most urgent waiting one follows. Domains that were promised throughput are scheduled by HT.
// Neither keeps an account of time.
func newPRT(o Options) Policy {
	run := runs(&o)
	return newRuns("prt", o, func(c *tenant) int {
		if c.domain.Promise.Throughput {
			return run(c)
		}
		return 1
	})
}

// newHT returns TimeGraph's scheduling for throughput: the requests of a domain follow one another without a
// new decision until it has none, or a more urgent domain has one. As published a domain could keep the
// accelerator from its equals for ever: here a run is limited.
func newHT(o Options) Policy {
	return newRuns("ht", o, runs(&o))
}

func newRuns(name string, o Options, run func(*tenant) int) Policy {
	q := newCommonQueue(name, o, run, byPriority)
	q.limits.longest = runTime.of(&o)
	return q
}

// runs returns a function that returns how many requests a domain may submit one after the other.
func runs(o *Options) func(*tenant) int {
	n, span := runRequests.of(o), runTime.of(o)
	return func(c *tenant) int { return atMost(n, span, c.request().Predicted) }
}

// atMost returns how many requests of a length fit into a time, at least one and at most n.
func atMost(n int, span, each time.Duration) int {
	if each <= 0 {
		return n
	}
	return min(int(max(span/each, 1)), n)
}

// sharedUnit is the share slot of a queue without shares: all domains belong to one unit.
type sharedUnit struct {
	unit *unit
	run  func(first *tenant) int // number of requests that it may submit
}

func (e *sharedUnit) unitChanged(Time, *unit)           {}
func (e *sharedUnit) unitRemoved(Time, *unit)           {}
func (e *sharedUnit) enqueue(Time, *unit)               {}
func (e *sharedUnit) dequeue(Time, *unit)               {}
func (e *sharedUnit) charge(Time, *unit, time.Duration) {}
func (e *sharedUnit) complete(Time, *unit)              {}

func (e *sharedUnit) pick(Time) (*unit, int, Time) {
	c := e.unit.first()
	if c == nil {
		return nil, 0, Forever
	}
	return e.unit, e.run(c), Forever
}

func (e *sharedUnit) explain(*unit) string { return "" }
