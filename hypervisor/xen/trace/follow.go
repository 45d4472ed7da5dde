package trace

import (
	"errors"
	"io"
)

// Source is where CPUs' records come from, such as Buffers.
type Source interface {
	Read(tell func(cpu int, records []byte, lost bool))
	io.Closer
}

// Follower tells of the records of all CPUs in the order of their times, by our clock. One
// goroutine uses it.
type Follower struct {
	now    func() Instant
	open   func() (Source, error)
	source Source
	failed bool
	began  Instant
	clock  *Clock
	heard  int64 // when something was noted last, or could have been first
	told   bool  // that nothing is any more, or by another clock
	merger Merger
	last   []uint64 // each CPU's last record's time
}

// Follow follows a source, which is opened at the first look; now is Now, but for tests.
func Follow(now func() Instant, open func() (Source, error)) *Follower {
	return &Follower{now: now, open: open}
}

// Now is this instant, by our clock.
func (f *Follower) Now() int64 { return f.now().Nanos }

// settle is how long after its time a record may still be on its way to us, in ns: what is
// younger waits for the next look.
const settle = 200000

const (
	// silent is for how long, in ns, no CPU notes anything only if tracing was switched off: who
	// looks has woken up to do so, which would have been noted.
	silent = 2000000000
	// ahead is how far, in ns, the time of a record may be ahead that is one.
	ahead = 60000000000
)

var (
	errSilent = errors.New("nothing is noted any more: somebody has switched Xen's tracing off; it is switched on again")
	errClock  = errors.New("the CPU's time-stamp counter has gone back: this host was suspended")
)

// Look tells of the records since the last Look, up to a time that is a moment ago. It takes two
// looks until that is known; it isn't any more, and two looks later is again, where tracing was switched
// off by others, or the CPUs' clock set back: then what was told before says nothing of what comes. That is an
// error the first time. A source that can't be opened is told of once, and not tried again.
func (f *Follower) Look(tell func(at int64, r *Record)) (until int64, ok bool, err error) {
	now := f.now() // before the reading: all up to here, but for what is on its way, is there
	if ok, err = f.ready(now); !ok {
		return 0, false, err
	}
	f.source.Read(func(cpu int, records []byte, lost bool) {
		if lost || len(records) > 0 {
			f.heard, f.told = now.Nanos, false
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
	f.merger.Until(old, func(r *Record) { tell(f.clock.Nanos(r.At), r) })
	f.merger.Drop(now.Ticks + f.clock.Ticks(ahead))
	return f.clock.Nanos(old), true, nil
}

// ready says whether there is a source, and a clock, for which it takes two looks.
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

// again begins anew with the next look, and says why, once.
func (f *Follower) again(why error) error {
	told := f.told
	if err := f.Close(); err != nil {
		why = errors.Join(why, err)
	}
	if f.told = true; told {
		return nil
	}
	return why
}

// Close closes the source; the next look opens it again.
func (f *Follower) Close() error {
	var err error
	if f.source != nil {
		err = f.source.Close()
	}
	*f = Follower{now: f.now, open: f.open, failed: f.failed}
	return err
}
