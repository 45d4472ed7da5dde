package policies

import (
	"fmt"
	"time"
)

// RequestOptions are the parameters of the policies that decide about single requests. check returns an error
// if one is out of its range.
type RequestOptions struct {
	Accounts Accounts // number of accounts of an accelerator
	Order    Order    // of the domains of a unit (fifo, credit, band, drr); 0: as published
	Arrival  bool     // fifo: in order of the requests' arrival, not in turn

	// Options of credit and band:
	Launches int           // requests lent to one domain at a time, at most; 0: 32; up to 1024
	Period   time.Duration // interval of the refills of a unit's credit; 0: 30 ms; 1 ms to 1 s
	Window   time.Duration // over which a unit's use is measured; 0: 1 s; 0.1 to 10 s
	// Mean, if not 0, replaces the window by a running mean over this time; 250 ms
	// is a good value; 30 ms to 10 s.
	Mean time.Duration
	// HoldBack is how long a unit that used more than its part is held back in favour of others (band); 0:
	// 500 µs; 10 µs to 30 ms.
	HoldBack time.Duration

	// Options of prt and ht:
	RunRequests int           // requests of a run (HT), at most; 0: 8; up to 1024
	RunTime     time.Duration // their predicted total time; 0: 10 ms; 0.1 ms to 1 s

	// History is the number of keys per domain whose cost an a-priori reserve (AE) remembers for its
	// predictions; 0: the submitter's predictions are used; up to 65536.
	History int
	// Options of reserves:
	BackgroundCost   time.Duration // of the reserve of all domains without a promise; 0: 2.5 ms; 0.01 ms to 1 s
	BackgroundPeriod time.Duration // 0: 25 ms; 1 ms to 10 s
	ReserveLimit     int           // of all reserves together, in %; 0: 90; 1 to 100

	// Options of drr:
	Quantum time.Duration // per turn of a domain with 256 credits; 0: 0.5 ms; 0.05 to 30 ms
	// Jiffy, if not 0, is the period of the clock that measures use in place of the ends of requests, as
	// published; 0.1 to 100 ms.
	Jiffy time.Duration
}

// Accounts is the division of an accelerator's engines into accounts.
type Accounts uint8

const (
	SDQ Accounts = iota // one for all of its engines
	MRQ                 // one for the compute engine, one for the copy engines
)

// Order is the order in which the domains of a unit are served.
type Order uint8

const (
	PolicyOrder   Order = iota
	ArrivalOrder        // by arrival of the requests
	PriorityOrder       // FP: the more urgent first
	DeadlineOrder       // EDF: the earliest deadline first
)

// or returns the selected order, by default the given one.
func (o Order) or(published order) order {
	switch o {
	case ArrivalOrder:
		return byArrival
	case PriorityOrder:
		return byPriority
	case DeadlineOrder:
		return byDeadline
	}
	return published
}

const ms = time.Millisecond

func (o RequestOptions) filled() RequestOptions {
	fill(&o.Launches, 32)
	fill(&o.Period, 30*ms)
	fill(&o.Window, time.Second)
	fill(&o.HoldBack, ms/2)
	fill(&o.RunRequests, 8)
	fill(&o.RunTime, 10*ms)
	fill(&o.BackgroundCost, 5*ms/2)
	fill(&o.BackgroundPeriod, 25*ms)
	fill(&o.ReserveLimit, 90)
	fill(&o.Quantum, ms/2)
	return o
}

// fill sets a zero v to the given default.
func fill[T int | time.Duration](v *T, otherwise T) {
	if *v == 0 {
		*v = otherwise
	}
}

// check returns an error that names the first parameter out of its range.
func (o RequestOptions) check() error {
	o = o.filled()
	if o.Accounts > MRQ {
		return fmt.Errorf("accounts is %d; %d (SDQ) and %d (MRQ) are allowed", o.Accounts, SDQ, MRQ)
	}
	if o.Order > DeadlineOrder {
		return fmt.Errorf("order is %d; %d (the policy's) to %d (by deadline) are allowed", o.Order, PolicyOrder, DeadlineOrder)
	}
	for _, n := range []struct {
		name            string
		is, least, most int
	}{
		{"launches", o.Launches, 1, 1024},
		{"run requests", o.RunRequests, 1, 1024},
		{"history", o.History, 0, 1 << 16},
		{"reserve limit", o.ReserveLimit, 1, 100},
	} {
		if n.is < n.least || n.is > n.most {
			return fmt.Errorf("%s is %d; %d to %d is allowed", n.name, n.is, n.least, n.most)
		}
	}
	for _, d := range []struct {
		name            string
		is, least, most time.Duration
	}{
		{"period", o.Period, ms, time.Second},
		{"window", o.Window, ms * 100, 10 * time.Second},
		{"mean", max(o.Mean, 30*ms), 30 * ms, 10 * time.Second},
		{"hold back", o.HoldBack, ms / 100, 30 * ms},
		{"run time", o.RunTime, ms / 10, time.Second},
		{"background cost", o.BackgroundCost, ms / 100, time.Second},
		{"background period", o.BackgroundPeriod, max(ms, o.BackgroundCost), 10 * time.Second},
		{"quantum", o.Quantum, ms / 20, 30 * ms},
		{"jiffy", max(o.Jiffy, ms/10), ms / 10, 100 * ms},
	} {
		if d.is < d.least || d.is > d.most {
			return fmt.Errorf("%s is %v; %v to %v is allowed", d.name, d.is, d.least, d.most)
		}
	}
	return nil
}
