package gate

import (
	"encoding/binary"
	"strings"
	"unicode"
	"unicode/utf8"

	"pegasus/accel"
)

// Note turns tracing on or off: while it is on, workers record which work they executed and when. Any goroutine may
// call it.
func (p *Page) Note(yes bool) {
	var word uint32
	if yes {
		word = 1
	}
	p.at.noting.Store(word)
}

// Noted is a trace record: work that a worker executed.
type Noted struct {
	accel.Usage
	PID  int    // of the worker
	Name string // of a kernel, possibly truncated; empty for other work
}

// Reader reads the trace records of a Page's workers. One goroutine uses it.
type Reader struct {
	page *Page
	next [Slots]uint64
}

// NewReader returns a Reader of the records from now on.
func NewReader(p *Page) *Reader {
	r := &Reader{page: p}
	for i := range int(p.top.Load()) {
		r.next[i] = p.at.traceRing[i].n.Load()
	}
	return r
}

// Read passes the records since the last Read to emit, and returns how many were lost. It drops impossible records:
// work that ends before it begins, or in the future.
func (r *Reader) Read(emit func(Noted)) (lost uint64) {
	for i := range int(r.page.top.Load()) {
		traceRing, pid := &r.page.at.traceRing[i], int(r.page.at.slot[i].pid.Load())
		n := traceRing.n.Load()
		switch missed := n - r.next[i]; {
		case n < r.next[i]:
			r.next[i] = n // the worker is compromised
		case missed > traceRingRecords:
			lost += missed - traceRingRecords
			r.next[i] = n - traceRingRecords
		}
		for ; r.next[i] < n; r.next[i]++ {
			u, name, ok := traceRing.read(r.next[i])
			if !ok && traceRing.note[r.next[i]%traceRingRecords].seq.Load() == 0 && n-r.next[i] < traceRingRecords/2 {
				break // the worker is writing it
			}
			switch {
			case !ok:
				lost++
			case u.Class < accel.NumClasses && u.Start < u.End && u.End <= Now():
				emit(Noted{u, pid, printable(name)})
			}
		}
	}
	return lost
}

// write records a piece of work. Any goroutine of the worker may call it.
func (r *traceRing) write(u accel.Usage, name string) {
	i := r.n.Add(1) - 1
	e := &r.note[i%traceRingRecords]
	e.seq.Store(0)
	e.start.Store(u.Start)
	e.end.Store(u.End)
	e.class.Store(uint32(u.Class))
	e.setName(name)
	e.seq.Store(i + 1)
}

// maxName is the number of bytes of a name that a record holds.
const maxName = 8 * nameWords

// setName stores the beginning of a name, cut at a character.
func (e *note) setName(name string) {
	n := min(len(name), maxName)
	for n > 0 && n < len(name) && !utf8.RuneStart(name[n]) {
		n--
	}
	e.length.Store(uint32(n))
	for i := 0; i < n; i += 8 {
		var word [8]byte
		copy(word[:], name[i:n])
		e.name[i/8].Store(binary.LittleEndian.Uint64(word[:]))
	}
}

func (e *note) getName() string {
	n := int(min(e.length.Load(), maxName))
	var name [maxName]byte
	for i := 0; i < n; i += 8 {
		binary.LittleEndian.PutUint64(name[i:], e.name[i/8].Load())
	}
	return string(name[:n])
}

// printable replaces unprintable characters in a name that a worker wrote and a guest may have chosen.
func printable(name string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, name)
}

// read returns record number i, if it is complete and not yet overwritten.
func (r *traceRing) read(i uint64) (u accel.Usage, name string, ok bool) {
	e := &r.note[i%traceRingRecords]
	if e.seq.Load() != i+1 {
		return u, "", false
	}
	u = accel.Usage{Class: accel.Class(min(e.class.Load(), uint32(accel.NumClasses))), Start: e.start.Load(), End: e.end.Load()}
	name = e.getName()
	return u, name, e.seq.Load() == i+1
}
