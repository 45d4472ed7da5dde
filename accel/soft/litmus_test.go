package soft

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"pegasus/accel"
	"pegasus/cuda"
)

// A litmus program is a random sequence of work in several streams. Plain rules (happensBefore) derive the order that
// CUDA guarantees. Data is touched only where these rules order all conflicting accesses; then the result must be the
// one of running the program in sequence.

const litmusBuffers = 6

type litmus struct {
	t       *testing.T
	r       *rand.Rand
	c       *Context
	code    *Module
	streams []accel.Stream // the first is the legacy default stream
	block   []bool
	events  []accel.Event
	records []int // by event: its latest record, -1
	ops     []litmusOp
	buffers [litmusBuffers]litmusBuffer
	out     []litmusOut
}

type litmusOp struct {
	stream int
	before []uint64 // bit set of the operations that happen before
}

type litmusBuffer struct {
	addr          uint64
	model         []byte // its content in sequence
	read, written []int
}

type litmusOut struct{ got, want []byte }

// next begins a new operation in stream s and derives the operations that happen before it.
func (l *litmus) next(s int, also ...int) int {
	j := len(l.ops)
	before := make([]uint64, j/64+1)
	add := func(i int) {
		before[i/64] |= 1 << (i % 64)
		for w, bits := range l.ops[i].before {
			before[w] |= bits
		}
	}
	for i := range l.ops {
		other := l.ops[i].stream
		if other == s || s == 0 && l.block[other] || other == 0 && l.block[s] {
			add(i)
		}
	}
	for _, i := range also {
		add(i)
	}
	l.ops = append(l.ops, litmusOp{s, before})
	return j
}

func (l *litmus) ordered(j int, earlier []int) bool {
	for _, i := range earlier {
		if l.ops[j].before[i/64]>>(i%64)&1 == 0 {
			return false
		}
	}
	return true
}

// may reports whether operation j, the latest, may read from and write to buffers (-1: none).
// It notes that it does, or takes the operation back.
func (l *litmus) may(j, from, to int) bool {
	if !l.safe(j, from, to) {
		l.ops = l.ops[:j]
		return false
	}
	if from >= 0 {
		l.buffers[from].read = append(l.buffers[from].read, j)
	}
	if to >= 0 {
		l.buffers[to].written = append(l.buffers[to].written, j)
	}
	return true
}

func (l *litmus) safe(j, from, to int) bool {
	if from >= 0 && !l.ordered(j, l.buffers[from].written) {
		return false
	}
	return to < 0 || l.ordered(j, l.buffers[to].written) && l.ordered(j, l.buffers[to].read)
}

func (l *litmus) step() {
	s := l.r.IntN(len(l.streams))
	e := l.r.IntN(len(l.events))
	from, to := l.r.IntN(litmusBuffers), l.r.IntN(litmusBuffers)
	a, b := &l.buffers[from], &l.buffers[to]
	n := min(len(a.model), len(b.model))
	st := l.streams[s]
	switch l.r.IntN(10) {
	case 0:
		l.records[e] = l.next(s)
		submit(l.t, l.c, st, accel.Record{Event: l.events[e]})
	case 1, 2:
		if i := l.records[e]; i >= 0 {
			l.next(s, i)
		}
		submit(l.t, l.c, st, accel.WaitEvent{Event: l.events[e]})
	case 3:
		if j := l.next(s); l.may(j, -1, to) {
			host := make([]byte, len(b.model))
			for i := range host {
				host[i] = byte(l.r.Uint32())
			}
			copy(b.model, host)
			submit(l.t, l.c, st, accel.Copy{Dst: accel.End{Address: b.addr}, Src: accel.End{Host: host}, Width: uint64(len(host)), Height: 1, Depth: 1})
		}
	case 4:
		if j := l.next(s); l.may(j, from, -1) {
			o := litmusOut{make([]byte, len(a.model)), bytes.Clone(a.model)}
			l.out = append(l.out, o)
			submit(l.t, l.c, st, accel.Copy{Src: accel.End{Address: a.addr}, Dst: accel.End{Host: o.got}, Width: uint64(len(o.got)), Height: 1, Depth: 1})
		}
	case 5:
		if from == to {
			return
		}
		if j := l.next(s); l.may(j, from, to) {
			copy(b.model[:n], a.model)
			submit(l.t, l.c, st, accel.Copy{Dst: accel.End{Address: b.addr}, Src: accel.End{Address: a.addr}, Width: uint64(n), Height: 1, Depth: 1})
		}
	case 6:
		if j := l.next(s); l.may(j, -1, to) {
			v := byte(l.r.Uint32())
			for i := range b.model {
				b.model[i] = v
			}
			submit(l.t, l.c, st, accel.Fill{Address: b.addr, Width: uint64(len(b.model)), Height: 1, Value: uint32(v), ElementSize: 1})
		}
	case 7, 8:
		if j := l.next(s); l.may(j, to, to) {
			for i := range b.model {
				b.model[i] = b.model[i]*3 + 1
			}
			params := binary.LittleEndian.AppendUint64(nil, b.addr)
			params = binary.LittleEndian.AppendUint32(params, uint32(len(b.model)))
			submit(l.t, l.c, st, launchOf(l.code, params...))
		}
	case 9:
		if l.r.IntN(2) == 0 {
			l.next(s)
			submit(l.t, l.c, st, accel.HostFunc{Due: func(_ cuda.Result, f func()) { f() }})
			return
		}
		want(l.t, l.c.Free(b.addr, nil), cuda.Success)
		*b = litmusBuffer{addr: alloc(l.t, l.c, uint64(len(b.model))), model: make([]byte, len(b.model))}
	}
}

func TestLitmus(t *testing.T) {
	r := seed(t)
	d, c := open(t, nil)
	sizes := [litmusBuffers]int{64, 1000, 8 << 10, 20 << 10, 60 << 10, 1100 << 10}
	rounds := 20
	if testing.Short() {
		rounds = 15
	}
	for range rounds {
		l := &litmus{t: t, r: r, c: c, streams: []accel.Stream{c.DefaultStream()}, block: []bool{true}}
		for range 4 {
			flags := uint32(r.IntN(2))
			l.streams, l.block = append(l.streams, stream(t, c, flags)), append(l.block, flags == 0)
			l.events, l.records = append(l.events, event(t, c)), append(l.records, -1)
		}
		for i := range l.buffers {
			l.buffers[i] = litmusBuffer{addr: alloc(t, c, uint64(sizes[i])), model: make([]byte, sizes[i])}
		}
		l.code = goModule(c, 12, func(k *run) *fault {
			addr, n := binary.LittleEndian.Uint64(k.Params), binary.LittleEndian.Uint32(k.Params[8:])
			b := d.space.Slice(addr, uint64(n))
			for i := range b {
				b[i] = b[i]*3 + 1
			}
			return nil
		})
		for range 150 {
			l.step()
		}
		want(t, synchronize(t, c), cuda.Success)
		for i := range l.buffers {
			b := &l.buffers[i]
			if !bytes.Equal(download(t, c, b.addr, len(b.model)), b.model) {
				t.Fatalf("buffer %d has not the content of the sequence", i)
			}
			want(t, c.Free(b.addr, nil), cuda.Success)
		}
		for i, o := range l.out {
			if !bytes.Equal(o.got, o.want) {
				t.Fatalf("copy out %d read what was not there in sequence", i)
			}
		}
	}
}
