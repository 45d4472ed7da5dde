// Package runs tells when the vCPUs of Xen's domUs ran, for a picture of it: from the hypervisor's
// trace, so each run by itself and exactly.
//
// Who calls it: the backend, by the hypervisor contract, in Dom0. Whom it trusts: the hypervisor.
package runs

import (
	"io"
	"log/slog"

	"pegasus/hypervisor"
	"pegasus/hypervisor/xen/schedule"
	"pegasus/hypervisor/xen/trace"
)

// Source is where records come from, such as trace.Buffers.
type Source interface {
	Read(tell func(cpu int, records []byte, lost bool))
	io.Closer
}

// Runs fulfils hypervisor.Runs for domUs.
type Runs struct {
	open func() (Source, error)
	now  func() trace.Instant
	log  *slog.Logger

	source  Source
	failed  bool // to open it, and said so
	began   trace.Instant
	clock   *trace.Clock
	merger  trace.Merger
	last    []uint64 // each CPU's last record's time
	history *schedule.History
	ran     []schedule.Run
}

// New returns the runs of this host's domUs. The source is opened when somebody first looks; now
// is trace.Now, but for tests.
func New(log *slog.Logger, now func() trace.Instant, open func() (Source, error)) *Runs {
	return &Runs{open: open, now: now, log: log}
}

// settle is how long after its time a record may still be on its way to us, in ns: what is
// younger waits for the next look.
const settle = 1000000

// Look implements hypervisor.Runs.
func (r *Runs) Look(of []hypervisor.Guests, tell func(hypervisor.Run)) {
	now := r.now() // before the reading: all up to here, but for what is on its way, is there
	if !r.ready(now) {
		return
	}
	r.read()
	r.take(now)
	names := make(map[uint16]string)
	for _, g := range of {
		if g.Xen != 0 {
			names[g.Xen] = g.Domain
		}
	}
	for _, run := range r.ran {
		if name, ok := names[run.VCPU.Domain]; ok {
			tell(hypervisor.Run{Domain: name, VCPU: int(run.VCPU.Number), CPU: run.CPU, From: run.From, To: run.To})
		}
	}
	r.ran = r.ran[:0]
}

// ready says whether there is a source, and a clock, for which it takes two looks.
func (r *Runs) ready(now trace.Instant) bool {
	switch {
	case r.failed:
		return false
	case r.source == nil:
		var err error
		if r.source, err = r.open(); err != nil {
			r.failed, r.source = true, nil
			r.log.Warn("can't see when domUs run", "err", err)
			return false
		}
		r.began = now
		r.history = schedule.NewHistory(func(run schedule.Run) { r.ran = append(r.ran, run) })
		return false
	case r.clock == nil:
		var err error
		if r.clock, err = trace.NewClock(r.began, now); err != nil {
			return false
		}
	default:
		r.clock.Set(now)
	}
	return true
}

func (r *Runs) read() {
	r.source.Read(func(cpu int, records []byte, lost bool) {
		for len(r.last) <= cpu {
			r.last = append(r.last, 0)
		}
		if lost {
			r.merger.Add(&trace.Record{CPU: cpu, Event: trace.Lost, At: r.last[cpu]})
		}
		trace.Decode(cpu, r.last[cpu], records, func(rec *trace.Record) {
			r.last[cpu] = rec.At
			r.merger.Add(rec)
		})
	})
}

// take has the history take what is old enough, and tell of what still runs.
func (r *Runs) take(now trace.Instant) {
	until := now.Ticks
	if young := r.clock.Ticks(settle); young < until {
		until -= young
	}
	r.merger.Until(until, func(rec *trace.Record) { r.history.Take(r.clock.Nanos(rec.At), rec) })
	r.history.Flush()
}

// Close implements hypervisor.Runs.
func (r *Runs) Close() {
	if r.source != nil {
		if err := r.source.Close(); err != nil {
			r.log.Warn("end of looking at when domUs run", "err", err)
		}
		r.source, r.clock, r.history = nil, nil, nil
	}
	r.merger, r.last, r.ran = trace.Merger{}, nil, nil
}
