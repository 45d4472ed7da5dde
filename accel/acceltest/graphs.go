package acceltest

import (
	"encoding/binary"
	"sync/atomic"
	"testing"

	"pegasus/accel"
	"pegasus/cuda"
)

// grapher returns the context's Graphs, or skips the test.
func (b *bench) grapher() accel.Grapher {
	b.Helper()
	g := b.ctx.Capabilities().Graphs
	if g == nil {
		b.Skip("it takes no graphs")
	}
	return g
}

func (b *bench) graph(before accel.Graph, nodes ...accel.GraphNode) accel.Graph {
	b.Helper()
	g, r := b.grapher().NewGraph(nodes, before)
	if r == cuda.ErrorNotSupported {
		b.Skip("it takes no such graph")
	}
	b.want(r, cuda.Success)
	return g
}

// adding returns a launch that sets *to = *from + n.
func adding(m accel.Module, to, from uint64, n uint32) *accel.Launch {
	l := launch(m, "add", binary.LittleEndian.AppendUint32(words64(to, from), n))
	return &l
}

func (b *bench) number(at uint64) uint32 {
	b.Helper()
	return binary.LittleEndian.Uint32(b.download(at, 4))
}

// testGraphs checks that at each replay a graph's nodes run after their dependencies, and that a replay is charged as
// one piece of work.
func testGraphs(t *testing.T, b *bench) {
	b.start(Options{})
	b.grapher()
	m, s := b.module(kernels), b.stream(1)
	p := b.alloc(64)
	within := linear(at(p+12), at(p+4), 4)
	g := b.graph(nil,
		accel.GraphNode{Work: &accel.Fill{Address: p, Width: 2, Height: 1, Value: 5, ElementSize: 4}},
		accel.GraphNode{Work: adding(m, p+4, p, 10), After: []uint32{0}},  // 15
		accel.GraphNode{Work: adding(m, p+8, p, 100), After: []uint32{0}}, // 105
		accel.GraphNode{After: []uint32{1, 2}},
		accel.GraphNode{Work: &within, After: []uint32{3}},                // 15
		accel.GraphNode{Work: adding(m, p+8, p+8, 1), After: []uint32{3}}, // 106
		accel.GraphNode{Work: adding(m, p+16, p+16, 1)},
	)
	for i := range uint32(5) {
		a := make(chan accel.Usage, 1)
		var spent atomic.Int64
		b.want(b.ctx.Submit(s, accel.Replay{Graph: g, Spent: func(u accel.Usage) { spent.Add(u.End - u.Start) }}, func(r cuda.Result, u accel.Usage) {
			if r != cuda.Success {
				t.Error(r)
			}
			a <- u
		}), cuda.Success)
		u := <-a
		if u.Class != accel.Compute || u.End <= u.Start {
			t.Errorf("charged are %d ns of class %d", u.End-u.Start, u.Class)
		}
		if n := spent.Load(); n > u.End-u.Start {
			t.Errorf("told of %d ns while it went on, of %d in all", n, u.End-u.Start)
		}
		for j, want := range []uint32{5, 15, 106, 15, i + 1} {
			if got := b.number(p + 4*uint64(j)); got != want {
				t.Errorf("launch %d: word %d is %d, want %d", i, j, got, want)
			}
		}
	}
	g.Destroy()
	b.want(b.ctx.Submit(s, accel.Replay{Graph: g}, nil), cuda.ErrorInvalidHandle)
	empty := b.graph(nil)
	a := newAnswer()
	b.want(b.ctx.Submit(s, accel.Replay{Graph: empty}, a.done), cuda.Success)
	b.want(b.wait(a), cuda.Success)
	fills := b.graph(nil, accel.GraphNode{Work: &accel.Fill{Address: p, Width: 1, Height: 1, Value: 7, ElementSize: 4}})
	class := make(chan accel.Class, 1)
	b.want(b.ctx.Submit(s, accel.Replay{Graph: fills}, func(_ cuda.Result, u accel.Usage) { class <- u.Class }), cuda.Success)
	if c := <-class; c != accel.CopyDevice {
		t.Errorf("a graph without kernels is of class %d", c)
	}
}

// testGraphsInOrder checks that a replay runs after earlier work of its stream, and after the graph's previous replay,
// also in another stream and with another version of the graph.
func testGraphsInOrder(t *testing.T, b *bench) {
	b.start(Options{})
	b.grapher()
	m, one, two := b.module(kernels), b.stream(1), b.stream(1)
	p := b.alloc(64)
	k := b.spinner()
	chain := func(before accel.Graph, n uint32) accel.Graph {
		nodes := []accel.GraphNode{{Work: adding(m, p, p, n)}}
		for i := range uint32(20) {
			nodes = append(nodes, accel.GraphNode{Work: adding(m, p, p, n), After: []uint32{i}})
		}
		return b.graph(before, nodes...)
	}
	g := chain(nil, 1)
	b.do(accel.Fill{Address: p, Width: 16, Height: 1, ElementSize: 4})
	b.submit(one, k.work())
	b.submit(one, accel.Replay{Graph: g})
	b.submit(two, accel.Replay{Graph: g}) // waits for the first
	h := chain(g, 100)
	b.want(b.ctx.Submit(one, accel.Replay{Graph: g}, nil), cuda.ErrorInvalidHandle)
	b.submit(one, accel.Replay{Graph: h})
	b.submit(two, accel.Replay{Graph: h})
	h.Destroy() // launched replays still complete
	b.want(two.Query(), cuda.ErrorNotReady)
	if got := b.numberAside(p); got != 0 {
		t.Errorf("before the stream comes to the graph there is %d", got)
	}
	k.letGo()
	b.want(b.sync(), cuda.Success)
	if got := b.number(p); got != 2*21+2*2100 {
		t.Errorf("%d, want %d", got, 2*21+2*2100)
	}
}

// numberAside returns the number at an address as number does, through a stream that waits for no other stream. It
// doesn't copy to shared host memory.
func (b *bench) numberAside(from uint64) uint32 {
	b.Helper()
	var out [4]byte
	a := newAnswer()
	b.want(b.ctx.Submit(b.stream(1), linear(host(out[:]), at(from), 4), a.done), cuda.Success)
	b.want(b.wait(a), cuda.Success)
	return binary.LittleEndian.Uint32(out[:])
}

// testGraphsRefused checks that invalid graphs are rejected, and replays of graphs that have become invalid.
func testGraphsRefused(t *testing.T, b *bench) {
	b.start(Options{})
	maker := b.grapher()
	m, s := b.module(kernels), b.stream(1)
	p := b.alloc(64)
	refused := func(want cuda.Result, nodes ...accel.GraphNode) {
		t.Helper()
		g, r := maker.NewGraph(nodes, nil)
		if r != want && r != cuda.ErrorNotSupported {
			t.Errorf("%v, want %v", r, want)
		}
		if r == cuda.Success {
			g.Destroy()
		}
	}
	good := adding(m, p, p, 1)
	short, strange := *good, *good
	short.Params = short.Params[:4]
	strange.Function = 100
	outside, elsewhere := linear(at(p), at(p+1<<40), 4), linear(at(p+60), at(p), 1<<40)
	refused(cuda.ErrorInvalidValue, accel.GraphNode{Work: good, After: []uint32{0}})
	refused(cuda.ErrorInvalidValue, accel.GraphNode{Work: good}, accel.GraphNode{Work: good, After: []uint32{5}})
	refused(cuda.ErrorInvalidValue, accel.GraphNode{Work: &short})
	refused(cuda.ErrorInvalidHandle, accel.GraphNode{Work: &strange})
	refused(cuda.ErrorInvalidValue, accel.GraphNode{Work: &outside})
	refused(cuda.ErrorInvalidValue, accel.GraphNode{Work: &elsewhere})
	refused(cuda.ErrorInvalidValue, accel.GraphNode{Work: &accel.Fill{Address: p + 1<<40, Width: 1, Height: 1, ElementSize: 1}})
	refused(cuda.ErrorNotSupported, accel.GraphNode{Work: accel.Record{Event: b.event()}})

	g := b.graph(nil, accel.GraphNode{Work: good})
	b.submit(s, accel.Replay{Graph: g})
	b.want(b.sync(), cuda.Success)
	if got := b.number(p); got != 1 {
		t.Errorf("%d, want 1", got)
	}
	m.Unload()
	b.want(b.ctx.Submit(s, accel.Replay{Graph: g}, nil), cuda.ErrorInvalidHandle)
	q := b.alloc(64)
	f := b.graph(nil, accel.GraphNode{Work: &accel.Fill{Address: q, Width: 1, Height: 1, ElementSize: 1}})
	b.want(b.ctx.Free(q, nil), cuda.Success)
	b.want(b.sync(), cuda.Success)
	b.want(b.ctx.Submit(s, accel.Replay{Graph: f}, nil), cuda.ErrorInvalidValue)
	other := b.context()
	b.want(other.Submit(other.DefaultStream(), accel.Replay{Graph: f}, nil), cuda.ErrorInvalidHandle)
	b.want(b.ctx.Submit(s, accel.Replay{}, nil), cuda.ErrorInvalidHandle)

	// A fault ends the context.
	n := b.module(kernels)
	bad := launch(n, "fault", words64(16))
	h := b.graph(nil, accel.GraphNode{Work: &bad}, accel.GraphNode{Work: adding(n, p, p, 1), After: []uint32{0}})
	a := newAnswer()
	b.want(b.ctx.Submit(s, accel.Replay{Graph: h}, a.done), cuda.Success)
	b.want(b.wait(a), cuda.ErrorIllegalAddress)
	b.want(b.ctx.Err(), cuda.ErrorIllegalAddress)
}
