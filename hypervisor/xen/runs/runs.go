// Package runs reports when the vCPUs of Xen's domUs ran, for a timeline: from the hypervisor's trace, so each run by
// itself and exactly.
//
// Callers: the backend, by the hypervisor contract, in Dom0.
//
// Trust boundary: the hypervisor is trusted.
package runs

import (
	"log/slog"

	"pegasus/hypervisor"
	"pegasus/hypervisor/xen/schedule"
	"pegasus/hypervisor/xen/trace"
)

// Runs implements hypervisor.Runs for domUs.
type Runs struct {
	follower *trace.Follower
	looked   int64 // time of the last report, ns; 0: never
	log      *slog.Logger
	history  *schedule.History
	ran      []schedule.Run
}

// New returns the runs of this host's domUs. The first Look opens the source; now is trace.Now, except in tests.
func New(log *slog.Logger, now func() trace.Instant, open func() (trace.Source, error)) *Runs {
	return &Runs{follower: trace.Follow(now, open), log: log}
}

// often is the shortest interval between reads of Xen's trace, in ns: it loses nothing for several times as long, and
// each reading has a cost.
const often = 10000000

// Look implements hypervisor.Runs.
func (r *Runs) Look(of []hypervisor.Guests, emit func(hypervisor.Run)) {
	now := r.follower.Now()
	if r.looked != 0 && now-r.looked < often {
		return
	}
	if r.history == nil {
		r.history = schedule.NewHistory(func(run schedule.Run) { r.ran = append(r.ran, run) })
	}
	_, ok, err := r.follower.Look(r.history.Take)
	if err != nil {
		r.log.Warn("can't see when domUs run", "err", err)
	}
	if !ok { // earlier records have no connection to later ones
		r.history = nil
		return
	}
	r.looked = now
	r.history.Flush()
	names := make(map[uint16]string)
	for _, g := range of {
		if g.Xen != 0 {
			names[g.Xen] = g.Domain
		}
	}
	for _, run := range r.ran {
		if name, ok := names[run.VCPU.Domain]; ok {
			emit(hypervisor.Run{Domain: name, VCPU: int(run.VCPU.Number), CPU: run.CPU, From: run.From, To: run.To})
		}
	}
	r.ran = r.ran[:0]
	r.history.Trim(func(domain uint16) bool { return names[domain] != "" }) // other domains come and go while the trace is open
}

// Close implements hypervisor.Runs.
func (r *Runs) Close() {
	if err := r.follower.Close(); err != nil {
		r.log.Warn("end of looking at when domUs run", "err", err)
	}
	r.history, r.ran, r.looked = nil, nil, 0
}
