package trace

import "io"

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

// Look tells of the records since the last Look, up to a time that is a moment ago. It takes two
// looks until that is known. A source that can't be opened is told of once, and not tried again.
func (f *Follower) Look(tell func(at int64, r *Record)) (until int64, ok bool, err error) {
	now := f.now() // before the reading: all up to here, but for what is on its way, is there
	if ok, err = f.ready(now); !ok {
		return 0, false, err
	}
	f.source.Read(func(cpu int, records []byte, lost bool) {
		for len(f.last) <= cpu {
			f.last = append(f.last, 0)
		}
		if lost {
			f.merger.Add(&Record{CPU: cpu, Event: Lost, At: f.last[cpu]})
		}
		Decode(cpu, f.last[cpu], records, func(r *Record) {
			f.last[cpu] = r.At
			f.merger.Add(r)
		})
	})
	old := now.Ticks
	if young := f.clock.Ticks(settle); young < old {
		old -= young
	}
	f.merger.Until(old, func(r *Record) { tell(f.clock.Nanos(r.At), r) })
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
		f.began = now
		return false, nil
	case f.clock == nil:
		f.clock, err = NewClock(f.began, now)
		return err == nil, nil
	}
	f.clock.Set(now)
	return true, nil
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
