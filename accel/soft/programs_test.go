package soft

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"pegasus/accel"
	"pegasus/accel/soft/engine"
	"pegasus/cuda"
)

// step adds three times a cell and a number to another one. It reads the first cell, waits for the clock or computes, and then
// reads and writes the other.
const steps = header + `
.visible .entry step(.param .u64 from, .param .u64 to, .param .u32 number, .param .u32 ticks)
{ .reg .u64 %a, %b; .reg .u32 %v, %w, %n, %s, %t, %e, %x; .reg .pred %p, %q;
ld.param.u64 %a, [from]; ld.param.u64 %b, [to]; ld.param.u32 %n, [number]; ld.param.u32 %e, [ticks];
cvta.to.global.u64 %a, %a; cvta.to.global.u64 %b, %b;
ld.global.u32 %v, [%a];
mov.u32 %x, %ctaid.x; setp.ne.u32 %q, %x, 0;
mov.u32 %s, %clock;
and.b32 %x, %n, 1; setp.eq.u32 %p, %x, 0; @%p bra busy;
again:
mov.u32 %t, %clock; sub.u32 %t, %t, %s; setp.lt.u32 %p, %t, %e;
@%p bra again;
bra done;
busy:
shr.u32 %e, %e, 7; add.u32 %e, %e, 1;
compute: mad.lo.u32 %x, %x, 5, %e; sub.u32 %e, %e, 1; setp.ne.u32 %p, %e, 0; @%p bra compute;
done:
@%q ret;
ld.global.u32 %w, [%b];
mad.lo.u32 %w, %v, 3, %w; add.u32 %w, %w, %n;
st.global.u32 [%b], %w;
ret; }`

// program is a random program without races, with the values that its cells have if its work is executed in the order of
// submission.
type program struct {
	rng     *rand.Rand
	cells   []uint32
	readers []map[int]bool // by cell: the operations since the last write
	writer  []int          // by cell, -1: none
	before  []map[int]bool // by operation: those that have ended when it begins
	last    []int          // by stream
}

// orders adds what x waits for, and x.
func (p *program) orders(to map[int]bool, x int) {
	if x >= 0 {
		to[x] = true
		for y := range p.before[x] {
			to[y] = true
		}
	}
}

// Stream 0 is the legacy stream, those with odd numbers do not keep order with it.
func (p *program) on(s int, also ...int) int {
	deps := map[int]bool{}
	for other := range p.last {
		if other == s || s == 0 && other%2 == 0 || other == 0 && s%2 == 0 {
			p.orders(deps, p.last[other])
		}
	}
	for _, x := range also {
		p.orders(deps, x)
	}
	p.before = append(p.before, deps)
	n := len(p.before) - 1
	p.last[s] = n
	return n
}

// missing returns the operations that conflict with an access by an operation that would wait for deps.
func (p *program) missing(deps map[int]bool, cell int, writes bool) (all []int) {
	if w := p.writer[cell]; w >= 0 && !deps[w] {
		all = append(all, w)
	}
	for r := range p.readers[cell] {
		if writes && !deps[r] {
			all = append(all, r)
		}
	}
	return all
}

func (p *program) access(n, cell int, writes bool) {
	if writes {
		p.writer[cell], p.readers[cell] = n, map[int]bool{}
	} else {
		p.readers[cell][n] = true
	}
}

// Whatever overlaps, waits, pauses and takes turns on the cores: memory is as if all work had been executed in the order of
// submission, and all time is charged.
func TestRandomPrograms(t *testing.T) {
	rng := seed(t)
	const streams, cells, operations, rounds = 12, 40, 100, 6
	for round := range rounds {
		page := newPage(t, engine.Options{Memory: 64 << 20})
		turn := newTurns(true)
		d, c := open(t, func(c *Config) { page.share(c); c.Cores, c.Turn = 2+round%3, turn })
		var charged atomic.Int64
		done := func(r cuda.Result, u accel.Usage) {
			if r != cuda.Success {
				t.Errorf("an operation ended with %s", r.Name())
			}
			if u.Class == accel.Compute || u.Class == accel.CopyDevice {
				charged.Add(u.End - u.Start)
			}
		}
		stop := turn.alternate(rng, 5*time.Millisecond)
		p := &program{rng: rng, cells: make([]uint32, cells), writer: slices.Repeat([]int{-1}, cells), last: slices.Repeat([]int{-1}, streams)}
		for range cells {
			p.readers = append(p.readers, map[int]bool{})
		}
		m := load(t, c, steps)
		base := alloc(t, c, 4*cells)
		at := func(cell int) uint64 { return base + 4*uint64(cell) }
		ss := []accel.Stream{c.DefaultStream()}
		for i := 1; i < streams; i++ {
			ss = append(ss, stream(t, c, uint32(i%2)))
		}
		// order makes a stream wait for operations, by events in the streams that have them.
		events := make([]accel.Event, streams)
		for i := range events {
			events[i] = event(t, c)
		}
		order := func(s int, ops []int) {
			for len(ops) > 0 {
				x := ops[0]
				of := slices.IndexFunc(p.last, func(l int) bool { return l >= 0 && (l == x || p.before[l][x]) })
				mark := p.on(of)
				want(t, c.Submit(ss[of], accel.Record{Event: events[of]}, nil), cuda.Success)
				n := p.on(s, mark)
				want(t, c.Submit(ss[s], accel.WaitEvent{Event: events[of]}, nil), cuda.Success)
				ops = slices.DeleteFunc(ops, func(y int) bool { return p.before[n][y] })
			}
		}
		for range operations {
			s, from, to := rng.IntN(streams), rng.IntN(cells), rng.IntN(cells)
			for len(p.missing(p.beside(s), from, false)) > 0 && rng.IntN(4) > 0 { // waits of all streams for each other leave little to overlap
				from = rng.IntN(cells)
			}
			for (from == to || len(p.missing(p.beside(s), to, true)) > 0) && (from == to || rng.IntN(6) > 0) {
				to = rng.IntN(cells)
			}
			kind := rng.IntN(8)
			missing := p.missing(p.beside(s), to, true)
			if kind > 0 {
				missing = append(missing, p.missing(p.beside(s), from, false)...)
			}
			order(s, missing)
			n := p.on(s)
			p.access(n, to, true)
			switch kind {
			case 0:
				p.cells[to] = rng.Uint32()
				want(t, c.Submit(ss[s], accel.Fill{Address: at(to), Width: 1, Height: 1, ElementSize: 4, Value: p.cells[to]}, done), cuda.Success)
			case 1:
				p.access(n, from, false)
				p.cells[to] = p.cells[from]
				want(t, c.Submit(ss[s], accel.Copy{Dst: accel.End{Address: at(to)}, Src: accel.End{Address: at(from)}, Width: 4, Height: 1, Depth: 1}, done), cuda.Success)
			default:
				p.access(n, from, false)
				number := rng.Uint32N(1000)
				p.cells[to] += 3*p.cells[from] + number
				params := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, at(from)), at(to))
				params = binary.LittleEndian.AppendUint32(params, number)
				params = binary.LittleEndian.AppendUint32(params, 100+rng.Uint32N(3_000_000)>>(2*rng.IntN(6)))
				l := launchOf(m, params...)
				l.Grid[0] = 1 + rng.Uint32N(4)>>rng.IntN(3)
				want(t, c.Submit(ss[s], l, done), cuda.Success)
			}
		}
		want(t, synchronize(t, c), cuda.Success)
		stop()
		for i, b := 0, download(t, c, base, 4*cells); i < cells; i++ {
			if got := binary.LittleEndian.Uint32(b[4*i:]); got != p.cells[i] {
				t.Errorf("round %d: cell %d is %d, want %d", round, i, got, p.cells[i])
			}
		}
		happens(t, "the engine is given back", func() bool { return page.Holder(engine.Compute) == 0 })
		if held := page.engines.Total()[engine.Compute]; held != charged.Load() {
			t.Errorf("round %d: the engine was held for %d ns, %d were charged", round, held, charged.Load())
		}
		e := d.executors[engine.Compute]
		happens(t, "no goroutine waits for a core", func() bool {
			e.mu.Lock()
			defer e.mu.Unlock()
			return len(e.waits) == 0 && len(e.crew) == 0
		})
	}
}

// beside returns what an operation in a stream would wait for.
func (p *program) beside(s int) map[int]bool {
	last := p.last[s]
	n := p.on(s)
	deps := p.before[n]
	p.before, p.last[s] = p.before[:n], last
	return deps
}
