package runs

import (
	"errors"
	"log/slog"
	"slices"
	"testing"

	"pegasus/hypervisor"
	"pegasus/hypervisor/xen/trace"
)

const ms = 1000000

// source has records for one CPU. Its clock runs twice as fast as ours.
type source struct {
	records []byte
	lost    bool
	closed  int
}

func (s *source) Read(emit func(cpu int, records []byte, lost bool)) {
	emit(0, s.records, s.lost)
	s.records, s.lost = nil, false
}

func (s *source) Close() error {
	s.closed++
	return nil
}

// note records a transition of a domain's vCPU 1 at a time, ns.
func (s *source) note(at int64, domain uint16, from, to trace.Runstate) {
	r := trace.Record{Event: trace.Running | uint32(from)<<8 | uint32(to)<<4, At: uint64(2 * at), N: 1}
	r.Words[0] = uint32(domain)<<16 | 1
	s.records = trace.Append(s.records, &r)
}

// Each run of a requested domain is reported, a run in progress in pieces, and none twice.
func TestRuns(t *testing.T) {
	var s source
	now := int64(0)
	r := New(slog.New(slog.DiscardHandler), func() trace.Instant { return trace.Instant{Ticks: uint64(2 * now), Nanos: now} },
		func() (trace.Source, error) { return &s, nil })
	of := []hypervisor.Guests{{Domain: "web", Xen: 3}, {Domain: "own", Processes: []int{1}}}
	look := func(at int64, want ...hypervisor.Run) {
		t.Helper()
		var got []hypervisor.Run
		now = at
		r.Look(of, func(run hypervisor.Run) { got = append(got, run) })
		if !slices.Equal(got, want) {
			t.Errorf("at %d ms: %+v, not %+v", at/ms, got, want)
		}
	}
	run := func(from, to int64) hypervisor.Run {
		return hypervisor.Run{Domain: "web", VCPU: 1, CPU: 0, From: from * ms, To: to * ms}
	}
	look(1 * ms)
	s.note(2*ms, 3, trace.Waits, trace.Runs)
	s.note(4*ms, 3, trace.Runs, trace.Blocked)
	s.note(4*ms, 7, trace.Waits, trace.Runs) // a domain that isn't requested
	s.note(8*ms, 7, trace.Runs, trace.Waits)
	s.note(8*ms, 3, trace.Blocked, trace.Runs)
	s.note(9900000, 3, trace.Runs, trace.Waits) // may not be the last one of its time
	look(10*ms, run(2, 4))
	look(12 * ms) // the source isn't read again so soon
	look(20*ms, hypervisor.Run{Domain: "web", VCPU: 1, From: 8 * ms, To: 9900000})
	s.note(21*ms, 3, trace.Waits, trace.Runs)
	s.note(25*ms, 9, trace.Offline, trace.Blocked)
	look(30*ms, run(21, 25))
	s.note(32*ms, 3, trace.Runs, trace.Blocked)
	look(40*ms, run(25, 32))
	s.note(42*ms, 3, trace.Waits, trace.Runs)
	look(50 * ms)
	s.lost = true // from 42 ms on
	s.note(55*ms, 3, trace.Runs, trace.Waits)
	look(60 * ms)
	r.Close()
	if s.closed != 1 {
		t.Errorf("closed %d times", s.closed)
	}
	r.Close()
}

// State of other domains, which come and go, is dropped.
func TestComeAndGo(t *testing.T) {
	var s source
	now := int64(0)
	r := New(slog.New(slog.DiscardHandler), func() trace.Instant { return trace.Instant{Ticks: uint64(2 * now), Nanos: now} },
		func() (trace.Source, error) { return &s, nil })
	of := []hypervisor.Guests{{Domain: "web", Xen: 3}}
	for i := range int64(1000) {
		now = (10*i + 20) * ms
		r.Look(of, func(hypervisor.Run) {})
		s.note(now+ms, uint16(i+4), trace.Waits, trace.Runs)
		s.note(now+2*ms, uint16(i+4), trace.Runs, trace.Offline)
	}
	if known := r.history.VCPUs(); len(known) > 4 {
		t.Errorf("%d vCPUs are remembered", len(known))
	}
}

// Missing buffers are logged once, and have no other effect.
func TestWithoutTrace(t *testing.T) {
	asked := 0
	r := New(slog.New(slog.DiscardHandler), trace.Now, func() (trace.Source, error) {
		asked++
		return nil, errors.New("no Dom0")
	})
	for range 3 {
		r.Look(nil, func(hypervisor.Run) { t.Error("somebody ran") })
	}
	r.Close()
	if asked != 1 {
		t.Errorf("asked %d times", asked)
	}
}

// Domains of Dom0 itself and domUs are each passed to their own source.
func TestBoth(t *testing.T) {
	var units, own fixed
	b := Both{&units, &own}
	b.Look([]hypervisor.Guests{{Domain: "only ", Xen: 3}}, func(hypervisor.Run) {})
	if own != "" {
		t.Error("Dom0's programs are looked for, of which there are none")
	}
	var cpus []int
	b.Look([]hypervisor.Guests{{Domain: "web", Xen: 3}, {Domain: "own"}}, func(r hypervisor.Run) { cpus = append(cpus, r.CPU) })
	b.Close()
	if units != "only web closed" || own != "own closed" || !slices.Equal(cpus, []int{1, -1}) {
		t.Errorf("%q, %q, %v", units, own, cpus)
	}
}

type fixed string

func (f *fixed) Look(of []hypervisor.Guests, emit func(hypervisor.Run)) {
	if len(of) == 0 {
		*f += "asked for nobody "
	}
	for _, g := range of {
		*f += fixed(g.Domain)
		emit(hypervisor.Run{CPU: 1})
	}
}

func (f *fixed) Close() { *f += " closed" }
