package trace

import (
	"slices"
	"testing"
)

// overflow writes a CPU's records until its buffer is full.
func overflow(mem []byte, at uint64) (last uint64) {
	for note(mem, &Record{Event: Wake, At: at, N: 2}) {
		at++
	}
	return at - 1
}

// After a full buffer, the records that follow are lost, though the CPU can't record the loss before its next event.
// A reader meanwhile gets lost, behind the last record.
func TestFull(t *testing.T) {
	f := newFake(false)
	b := open(t, f)
	now := int64(0)
	follower := Follow(func() Instant { return Instant{uint64(now), now} }, func() (Source, error) { return b, nil })
	type timedEvent struct {
		at    int64
		event uint32
	}
	look := func(at int64) (all []timedEvent) {
		now = at
		if _, _, err := follower.Look(func(at int64, r *Record) { all = append(all, timedEvent{at, r.Event}) }); err != nil {
			t.Fatal(err)
		}
		return all
	}
	look(1)
	look(100_000_000)
	last := int64(overflow(f.memory[1], 101_000_000))
	f.note(21, 150_000_000) // of another CPU, with room
	all := look(200_000_000)
	if n := len(all); n < 100 || !slices.Equal(all[n-3:], []timedEvent{{last, Wake}, {last, Lost}, {150_000_000, Wake}}) {
		t.Errorf("%d records, the last ones %v", n, all[max(n-3, 0):])
	}
	f.note(1, 250_000_000)
	if all := look(300_000_000); !slices.Equal(all, []timedEvent{{250_000_000, Wake}}) {
		t.Errorf("%v", all)
	}
}

// Both readers of one process get the loss, though the first of them frees the buffer.
func TestFullForAll(t *testing.T) {
	f := newFake(true)
	var c SharedReaders
	var both [2]*Buffers
	for i := range both {
		var err error
		if both[i], err = c.Open(f, f, AllSchedule, 32); err != nil {
			t.Fatal(err)
		}
	}
	for round := range 4 {
		for range 100 {
			f.note(1, 1)
		}
		read(both[1])
		overflow(f.memory[1], 2)
		if _, lost := read(both[0]); lost != 1 {
			t.Errorf("round %d: the first one is told %d times", round, lost)
		}
		if got, lost := read(both[1]); lost != 1 || len(got) < 100 {
			t.Errorf("round %d: the second one is told %d times, with %d records", round, lost, len(got))
		}
		for i, b := range both {
			if got, lost := read(b); len(got) != 0 || lost != 0 {
				t.Errorf("round %d: reader %d is told again, %d times, with %d records", round, i, lost, len(got))
			}
		}
	}
}

// note writes a CPU's record.
func (f *fake) note(frame uint64, at uint64) {
	note(f.memory[frame], &Record{Event: Wake, At: at, N: 2})
}

// A loss recorded by Xen is also reported at the time of the first lost record: the state is unknown from then on.
func TestLostSince(t *testing.T) {
	wake := Record{CPU: 3, Event: Wake, At: 20, N: 2}
	lost := Record{CPU: 3, Event: Lost, At: 90, N: 4, Words: [7]uint32{5, 1 << 16, 30, 0}}
	first := lost
	first.At = 30
	var got []Record
	decode(3, 0, Append(Append(nil, &wake), &lost), func(r *Record) { got = append(got, *r) })
	if !slices.Equal(got, []Record{wake, first, lost}) {
		t.Errorf("%+v", got)
	}
	for _, nonsense := range []uint32{0, 20, 90, 91} { // no time between the record before and this one
		lost.Words[2], got = nonsense, nil
		decode(3, 0, Append(Append(nil, &wake), &lost), func(r *Record) { got = append(got, *r) })
		if !slices.Equal(got, []Record{wake, lost}) {
			t.Errorf("since %d: %+v", nonsense, got)
		}
	}
}
