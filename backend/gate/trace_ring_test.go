package gate

import (
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"unicode"
	"unicode/utf8"

	"pegasus/accel"
)

// Workers' trace records are read once, in order, and only while tracing is on.
func TestNotes(t *testing.T) {
	p, _, m := fixture(t)
	finish := func(ns int64) {
		now := Now()
		m.Finish(Ticket{}, accel.Usage{Class: accel.CopyIn, Start: now - ns, End: now})
	}
	r := NewReader(p)
	var got []Noted
	read := func() uint64 { return r.Read(func(n Noted) { got = append(got, n) }) }
	finish(5)
	if read(); len(got) != 0 {
		t.Errorf("noted though nobody asked: %v", got)
	}
	p.Note(true)
	finish(7)
	finish(9)
	if lost := read(); lost != 0 || len(got) != 2 || got[0].End-got[0].Start != 7 || got[1].Class != accel.CopyIn || got[1].PID == 0 || got[1].Name != "" {
		t.Errorf("%v, %d lost", got, lost)
	}
	for name, want := range map[string]string{
		"":                            "",
		"_Z9vectorAddPKfS0_Pfi":       "_Z9vectorAddPKfS0_Pfi",
		strings.Repeat("n", maxName):  strings.Repeat("n", maxName),
		strings.Repeat("ü", maxName):  strings.Repeat("ü", maxName/2),
		"x" + strings.Repeat("ü", 99): "x" + strings.Repeat("ü", (maxName-1)/2),
		"a\nb\x1b[2J\xff":             "a\ufffdb\ufffd[2J\ufffd",
	} {
		now := Now()
		m.Spend(&Ticket{Name: name}, accel.Usage{Start: now - 4, End: now - 2})
		m.Finish(Ticket{Name: name, spent: 2}, accel.Usage{Start: now - 4, End: now})
		got = nil
		if read(); len(got) != 2 || got[0].Name != want || got[1].Name != want {
			t.Errorf("of %q came %+v, want %q", name, got, want)
		}
	}
	got = nil
	for range traceRingRecords + 10 {
		finish(1)
	}
	got = nil
	if lost := read(); lost != 10 || len(got) != traceRingRecords {
		t.Errorf("of %d notes %d came and %d were lost", traceRingRecords+10, len(got), lost)
	}
}

// No value that a worker writes makes the reader report impossible records, or read for ever.
func TestForgedNotes(t *testing.T) {
	p, _, _ := fixture(t)
	p.Note(true)
	r := NewReader(p)
	traceRing := &p.at.traceRing[0]
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		traceRing.n.Store(random.Uint64() >> random.UintN(64))
		for i := range traceRing.note {
			e := &traceRing.note[i]
			e.seq.Store(traceRing.n.Load() - random.Uint64N(2*traceRingRecords))
			e.start.Store(int64(random.Uint64()))
			e.end.Store(int64(random.Uint64()))
			e.class.Store(random.Uint32N(8))
			e.length.Store(random.Uint32())
			for j := range e.name {
				e.name[j].Store(random.Uint64())
			}
		}
		got := 0
		r.Read(func(n Noted) {
			if got++; n.Class >= accel.NumClasses || n.Start >= n.End || n.End > Now() || !utf8.ValidString(n.Name) || strings.ContainsFunc(n.Name, unicode.IsControl) {
				t.Fatalf("%+v", n)
			}
		})
		if got > traceRingRecords {
			t.Fatalf("%d notes of %d", got, traceRingRecords)
		}
	}
}

// Several goroutines of a worker write records at once while another process reads.
func TestNotesAtOnce(t *testing.T) {
	p, _, m := fixture(t)
	p.Note(true)
	r := NewReader(p)
	const writers, each = 4, 2000
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for range each {
				now := Now()
				m.Finish(Ticket{}, accel.Usage{Start: now - 3, End: now})
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	seen, lost := 0, uint64(0)
	for ended := false; !ended; {
		select {
		case <-done:
			ended = true
		default:
		}
		lost += r.Read(func(n Noted) {
			if seen++; n.End-n.Start != 3 {
				t.Errorf("a mixture: %+v", n)
			}
		})
	}
	if uint64(seen)+lost != writers*each {
		t.Errorf("%d notes came, %d were lost, of %d", seen, lost, writers*each)
	}
}
