package trace

import (
	"errors"
	"io"
)

// Source is a source of CPUs' records, such as Buffers.
type Source interface {
	Read(emit func(cpu int, records []byte, lost bool))
	io.Closer
}

// Follower returns the records of all CPUs in the order of their times, by our clock. Not safe for concurrent use.
type Follower struct {
	now      func() Instant
	open     func() (Source, error)
	source   Source
	failed   bool
	began    Instant
	clock    *Clock
	heard    int64 // time of the last record, or of the opening
	reported bool  // the pause or change of clock was reported
	merger   Merger
	last     []uint64 // time of each CPU's last record
}

// Follow returns a Follower of a source, which the first Look opens; now is Now, except in tests.
func Follow(now func() Instant, open func() (Source, error)) *Follower {
	return &Follower{now: now, open: open}
}

// Now returns this instant, by our clock.
func (f *Follower) Now() int64 { return f.now().Nanos }

// settle is the longest delay between a record's time and its visibility, in ns: younger records wait for the next
// look.
const settle = 200000

const (
	// silent is the time, in ns, without any record after which tracing counts as switched off: the caller's own
	// wakeups would have been recorded.
	silent = 2000000000
	// ahead is how far, in ns, a valid record's time may be ahead.
	ahead = 60000000000
)

var (
	errSilent = errors.New("no new records: another program has switched Xen's tracing off; switching it on again")
	errClock  = errors.New("the CPU's time-stamp counter has gone back: this host was suspended")
)

// Look calls emit with the records since the last Look, up to a time shortly before now. ok is false at the first
// look, which calibrates the clock. It is false for two looks after another program has switched tracing off or the
// CPUs' clock was set back, since earlier records then have no connection to later ones; the first of these looks
// returns an error. A source that can't be opened is reported once, and not retried.
func (f *Follower) Look(emit func(at int64, r *Record)) (until int64, ok bool, err error) {
	now := f.now() // before the reading: all records up to here, except delayed ones, are visible
	if ok, err = f.ready(now); !ok {
		return 0, false, err
	}
	f.source.Read(func(cpu int, records []byte, lost bool) {
		if lost || len(records) > 0 {
			f.heard, f.reported = now.Nanos, false
		}
		for len(f.last) <= cpu {
			f.last = append(f.last, 0)
		}
		if lost {
			f.merger.Add(&Record{CPU: cpu, Event: Lost, At: f.last[cpu]})
		}
		decode(cpu, f.last[cpu], records, func(r *Record) {
			f.last[cpu] = r.At
			f.merger.Add(r)
		})
	})
	if now.Nanos-f.heard > silent {
		return 0, false, f.again(errSilent)
	}
	old := now.Ticks
	if young := f.clock.Ticks(settle); young < old {
		old -= young
	}
	f.merger.Until(old, func(r *Record) { emit(f.clock.Nanos(r.At), r) })
	f.merger.Drop(now.Ticks + f.clock.Ticks(ahead))
	return f.clock.Nanos(old), true, nil
}

// ready reports whether the source is open and the clock calibrated, which takes two looks.
func (f *Follower) ready(now Instant) (ok bool, err error) {
	switch {
	case f.failed:
		return false, nil
	case f.source == nil:
		if f.source, err = f.open(); err != nil {
			f.failed, f.source = true, nil
			return false, err
		}
		f.began, f.heard = now, now.Nanos
		return false, nil
	case f.clock == nil:
		if f.clock, err = NewClock(f.began, now); err != nil {
			return false, f.again(err)
		}
		return true, nil
	case now.Ticks < f.clock.last.Ticks:
		return false, f.again(errClock)
	}
	f.clock.Set(now)
	return true, nil
}

// again restarts with the next look, and returns the reason, once.
func (f *Follower) again(why error) error {
	reported := f.reported
	if err := f.Close(); err != nil {
		why = errors.Join(why, err)
	}
	if f.reported = true; reported {
		return nil
	}
	return why
}

// Close closes the source; the next Look opens it again.
func (f *Follower) Close() error {
	var err error
	if f.source != nil {
		err = f.source.Close()
	}
	*f = Follower{now: f.now, open: f.open, failed: f.failed}
	return err
}
