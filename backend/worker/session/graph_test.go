package session

import (
	"testing"

	"pegasus/accel"
	"pegasus/backend/gate"
	"pegasus/backend/worker/workertest"
	"pegasus/callbuf"
	"pegasus/cuda"
	"pegasus/internal/testkit"
)

const graphAt = 64 << 10 // in the arena

// node returns a node of a graph's description.
func node(op cuda.Op, a workertest.Appender, after ...uint32) cuda.GraphNode {
	return cuda.GraphNode{Op: op, After: after, Payload: workertest.Payload(a)}
}

func kernelNode(module, function uint32, word uint64, after ...uint32) cuda.GraphNode {
	return node(cuda.OpLaunch, &cuda.LaunchArgs{
		Function: cuda.LaunchFunction(uint64(module), function), Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{1, 1, 1}, Params: le.AppendUint64(nil, word),
	}, after...)
}

// createGraph makes a graph of context 1.
func (b *bench) createGraph(want cuda.Result, id uint64, nodes ...cuda.GraphNode) {
	b.t.Helper()
	n := copy(b.g.Arena()[graphAt:], cuda.AppendGraph(nil, nodes))
	b.want(want, cuda.OpGraphCreate, 1, 0, &cuda.GraphCreateArgs{Graph: id, ArenaOffset: graphAt, Length: uint64(n)})
}

func (b *bench) launchGraph(id uint64, records ...uint64) {
	b.t.Helper()
	a := cuda.GraphLaunchArgs{Graph: id}
	for _, w := range records {
		a.Records = le.AppendUint64(a.Records, w)
	}
	b.queue(cuda.OpGraphLaunch, 1, 0, &a)
}

// On a device without graphs, nodes are submitted one by one, and the gate counts one request.
func TestGraph(t *testing.T) {
	b := newBench(t, workertest.SmallGeometry())
	word := b.context(1)
	b.createGraph(0, 7, kernelNode(1, 0, word), node(cuda.OpNop, nil, 0), kernelNode(1, 0, word, 1), kernelNode(1, 0, word))
	for range 10 {
		b.launchGraph(7)
	}
	b.want(0, cuda.OpContextSynchronize, 1, 0, nil)
	if got := b.read(1, word); got != 30 {
		t.Errorf("%d, want 30", got)
	}
	if d, _ := b.page.Statistics(0); d.Used[accel.Compute] != 30*b.dev.Cost || d.Ended[accel.Compute] != 10 {
		t.Errorf("charged are %d ns of %d pieces", d.Used[accel.Compute], d.Ended[accel.Compute])
	}
	// Another version under the same id, for later launches.
	b.createGraph(0, 7, kernelNode(1, 0, word))
	b.launchGraph(7)
	b.queue(cuda.OpGraphDestroy, 1, 0, &cuda.GraphDestroyArgs{Graph: 7})
	b.launchGraph(7)
	b.want(cuda.ErrorInvalidHandle, cuda.OpContextSynchronize, 1, 0, nil)
	if got := b.read(1, word); got != 31 {
		t.Errorf("%d, want 31", got)
	}
}

// The use of a graph's nodes is charged while the graph runs: it may take as long as many kernels.
func TestGraphIsChargedAsItGoes(t *testing.T) {
	b := newBench(t, workertest.SmallGeometry())
	word := b.context(1)
	b.createGraph(0, 7, kernelNode(1, 0, word), kernelNode(1, 0, word, 0), kernelNode(1, 1, word, 1))
	b.launchGraph(7)
	charged := func() int64 {
		d, _ := b.page.Statistics(0)
		return d.Used[accel.Compute]
	}
	testkit.Eventually(t, "two of three kernels are charged", func() bool { return charged() == 2*b.dev.Cost })
	b.dev.Leave <- struct{}{}
	b.want(0, cuda.OpContextSynchronize, 1, 0, nil)
	if got := charged(); got != 3*b.dev.Cost {
		t.Errorf("charged are %d ns, want %d", got, 3*b.dev.Cost)
	}
	if d, _ := b.page.Statistics(0); d.Ended[accel.Compute] != 1 {
		t.Errorf("%d requests have ended, want 1", d.Ended[accel.Compute])
	}
}

// A graph's records complete with the serials of the launch, whatever its result.
func TestGraphEvents(t *testing.T) {
	b := newBench(t, workertest.SmallGeometry())
	word := b.context(1)
	for _, e := range []uint64{20, 21} {
		b.queue(cuda.OpEventCreate, 1, 0, &cuda.EventCreateArgs{Event: e})
	}
	b.createGraph(0, 7,
		node(cuda.OpEventRecord, &cuda.EventRecordArgs{Event: 20}), kernelNode(1, 1, word, 0),
		node(cuda.OpEventRecord, &cuda.EventRecordArgs{Event: 21}, 1), node(cuda.OpStreamWaitEvent, &cuda.StreamWaitEventArgs{Event: 20}))
	b.launchGraph(7, 20, 3, 21, 4)
	b.want(0, cuda.OpEventSynchronize, 1, 0, &cuda.EventSynchronizeArgs{Event: 20})
	b.dev.Leave <- struct{}{}
	b.want(0, cuda.OpContextSynchronize, 1, 0, nil)
	reached := func(event, serial uint64) {
		t.Helper()
		if got := b.g.EventSerial(event); got < serial {
			t.Errorf("event %d is at %d, want %d", event, got, serial)
		}
	}
	reached(20, 3)
	reached(21, 4)
	b.launchGraph(7, 20, 5) // too few
	b.want(cuda.ErrorInvalidValue, cuda.OpContextSynchronize, 1, 0, nil)
	reached(20, 5)
	b.launchGraph(99, 20, 6, 21, 6) // no graph
	b.want(cuda.ErrorInvalidHandle, cuda.OpContextSynchronize, 1, 0, nil)
	reached(21, 6)
	b.launchGraph(7, 21, 7, 20, 8) // not its events
	b.want(cuda.ErrorInvalidHandle, cuda.OpContextSynchronize, 1, 0, nil)
	reached(20, 8)
	reached(21, 7)
}

// A host callback of a graph is due at each launch, and blocks the nodes after it.
func TestGraphCallback(t *testing.T) {
	b := newBench(t, workertest.SmallGeometry())
	word := b.context(1)
	b.createGraph(0, 7, kernelNode(1, 0, word), node(cuda.OpHostCallback, &cuda.HostCallbackArgs{Callback: 5}, 0), kernelNode(1, 0, word, 1))
	b.launchGraph(7)
	b.launchGraph(7)
	done := uint64(0)
	for range 2 {
		var due cuda.CallbackWaitResult
		due.Decode(b.want(0, cuda.OpCallbackWait, 0, 0, &cuda.CallbackWaitArgs{Done: done}))
		if due.Callback != 5 || due.Status != 0 {
			t.Errorf("due is %+v", due)
		}
		done = due.Callback
	}
	b.g.Send(callbuf.Header{Op: uint16(cuda.OpCallbackWait), Flags: callbuf.FlagReply, ReplySlot: 60, ReplyTag: 1 << 30}, workertest.Payload(&cuda.CallbackWaitArgs{Done: done}), workertest.Patience())
	b.want(0, cuda.OpContextSynchronize, 1, 0, nil)
	if got := b.read(1, word); got != 4 {
		t.Errorf("%d, want 4", got)
	}
	if b.s.calls.callbacks.any() {
		t.Error("callbacks are said to be outstanding")
	}
}

func TestGraphsRefused(t *testing.T) {
	b := newBench(t, workertest.SmallGeometry())
	word := b.context(1)
	b.context(2)
	launch := func(change func(a *cuda.LaunchArgs)) cuda.GraphNode {
		a := cuda.LaunchArgs{Function: cuda.LaunchFunction(1, 0), Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{1, 1, 1}, Params: le.AppendUint64(nil, word)}
		change(&a)
		return node(cuda.OpLaunch, &a)
	}
	copying := func(change func(a *cuda.CopyArgs)) cuda.GraphNode {
		a := cuda.CopyArgs{DstKind: cuda.EndDevice, SrcKind: cuda.EndArena, Dst: word, Width: 8, Height: 1, Depth: 1}
		change(&a)
		return node(cuda.OpCopy, &a)
	}
	for _, c := range []struct {
		name string
		want cuda.Result
		node cuda.GraphNode
	}{
		{"no such module", cuda.ErrorInvalidHandle, launch(func(a *cuda.LaunchArgs) { a.Function = cuda.LaunchFunction(9, 0) })},
		{"no such function", cuda.ErrorInvalidHandle, launch(func(a *cuda.LaunchArgs) { a.Function = cuda.LaunchFunction(1, 99) })},
		{"another context's", cuda.ErrorInvalidHandle, launch(func(a *cuda.LaunchArgs) { a.Function = cuda.LaunchFunction(2, 0) })},
		{"outside of the arena", cuda.ErrorInvalidValue, copying(func(a *cuda.CopyArgs) { a.Src = 1 << 40 })},
		{"over its end", cuda.ErrorInvalidValue, copying(func(a *cuda.CopyArgs) { a.Width = 2 << 20 })},
		{"bytes of the packet", cuda.ErrorInvalidValue, copying(func(a *cuda.CopyArgs) { a.SrcKind = cuda.EndInline })},
		{"bytes of a reply", cuda.ErrorInvalidValue, copying(func(a *cuda.CopyArgs) { a.DstKind = cuda.EndInline })},
		{"data", cuda.ErrorInvalidValue, copying(func(a *cuda.CopyArgs) { a.Data = []byte{1} })},
		{"a release word", cuda.ErrorInvalidValue, copying(func(a *cuda.CopyArgs) { a.Release = 1 })},
		{"no such array", cuda.ErrorInvalidHandle, copying(func(a *cuda.CopyArgs) { a.SrcKind = cuda.EndArray })},
		{"an overflow", cuda.ErrorInvalidValue, copying(func(a *cuda.CopyArgs) { a.Height, a.SrcPitch = 1<<62, 1<<62 })},
		{"elements of 3 bytes", cuda.ErrorInvalidValue, node(cuda.OpFill, &cuda.FillArgs{Dst: word, Width: 1, Height: 1, ElementSize: 3})},
		{"callback 0", cuda.ErrorInvalidValue, node(cuda.OpHostCallback, &cuda.HostCallbackArgs{})},
		{"event 0", cuda.ErrorInvalidValue, node(cuda.OpEventRecord, &cuda.EventRecordArgs{})},
		{"wait for 0", cuda.ErrorInvalidValue, node(cuda.OpStreamWaitEvent, &cuda.StreamWaitEventArgs{})},
		{"a payload too short", cuda.ErrorInvalidValue, cuda.GraphNode{Op: cuda.OpLaunch, Payload: make([]byte, 8)}},
		{"nothing with a payload", cuda.ErrorInvalidValue, cuda.GraphNode{Op: cuda.OpNop, Payload: make([]byte, 8)}},
		{"a graph in a graph", cuda.ErrorNotSupported, node(cuda.OpGraphLaunch, &cuda.GraphLaunchArgs{Graph: 7})},
		{"an allocation", cuda.ErrorNotSupported, node(cuda.OpMemAlloc, &cuda.MemAllocArgs{Size: 8})},
		{"no operation", cuda.ErrorNotSupported, cuda.GraphNode{Op: 9999}},
	} {
		t.Run(c.name, func(t *testing.T) { b.createGraph(c.want, 7, c.node) })
	}
	many := make([]cuda.GraphNode, maxGraphRecords+1)
	for i := range many {
		many[i] = node(cuda.OpEventRecord, &cuda.EventRecordArgs{Event: 20})
	}
	b.createGraph(cuda.ErrorNotSupported, 7, many...)
	b.createGraph(cuda.ErrorInvalidHandle, 0)
	b.createGraph(0, 7)
	b.want(cuda.ErrorInvalidHandle, cuda.OpGraphCreate, 2, 0, &cuda.GraphCreateArgs{Graph: 7, ArenaOffset: graphAt, Length: 8}) // another context's id
	b.want(cuda.ErrorInvalidValue, cuda.OpGraphCreate, 1, 0, &cuda.GraphCreateArgs{Graph: 8, ArenaOffset: 1 << 40, Length: 8})
	b.want(cuda.ErrorInvalidValue, cuda.OpGraphCreate, 1, 0, &cuda.GraphCreateArgs{Graph: 8, Length: 1 << 62})
	large := make([]cuda.GraphNode, 59000) // a graph that does not fit is rejected, until others are destroyed
	for i := range large {
		large[i].Op = cuda.OpNop
	}
	const fit = maxGraphBytes / (59000*(16+graphNodeBytes) + 8)
	for id := range uint64(fit) {
		b.createGraph(0, 100+id, large...)
	}
	b.createGraph(cuda.ErrorOutOfMemory, 99, large...)
	for id := range uint64(fit) {
		b.queue(cuda.OpGraphDestroy, 1, 0, &cuda.GraphDestroyArgs{Graph: 100 + id})
	}
	b.createGraph(0, 99, large...)
	// An error in the middle ends a launch, and is returned later.
	b.createGraph(0, 9, kernelNode(1, 0, word), launch(func(a *cuda.LaunchArgs) { a.Grid[0] = 0 }), kernelNode(1, 0, word))
	b.launchGraph(9)
	b.want(cuda.ErrorInvalidValue, cuda.OpContextSynchronize, 1, 0, nil)
	b.want(0, cuda.OpContextSynchronize, 1, 0, nil)
	if got := b.read(1, word); got != 1 {
		t.Errorf("%d, want 1", got)
	}
	b.survives()
}

// FuzzGraphCreate makes graphs of any bytes and launches them, with an event and a callback that they may name.
func FuzzGraphCreate(f *testing.F) {
	f.Add(cuda.AppendGraph(nil, []cuda.GraphNode{kernelNode(1, 0, 0x3000_0000_0000), node(cuda.OpNop, nil, 0), kernelNode(1, 2, 16, 1)}))
	f.Add(cuda.AppendGraph(nil, []cuda.GraphNode{
		node(cuda.OpEventRecord, &cuda.EventRecordArgs{Event: 20}), node(cuda.OpStreamWaitEvent, &cuda.StreamWaitEventArgs{Event: 20}),
		node(cuda.OpHostCallback, &cuda.HostCallbackArgs{Callback: 5}, 0, 1),
		node(cuda.OpCopy, &cuda.CopyArgs{DstKind: 2, SrcKind: 1, Src: 0x3000_0000_0000, Width: 2, Height: 2, Depth: 1, SrcPitch: 4, DstPitch: 8}, 2),
		node(cuda.OpFill, &cuda.FillArgs{Dst: 0x3000_0000_0000, Width: 2, Height: 1, ElementSize: 2}),
	}))
	f.Fuzz(func(t *testing.T, in []byte) {
		b := newBench(t, workertest.SmallGeometry())
		b.page.SetQuota(gate.DeviceMemory, 1<<20)
		b.context(1)
		for range 100 {
			b.dev.Leave <- struct{}{}
		}
		b.queue(cuda.OpEventCreate, 1, 0, &cuda.EventCreateArgs{Event: 20})
		n := copy(b.g.Arena()[graphAt:], in)
		b.call(cuda.OpGraphCreate, 1, 0, &cuda.GraphCreateArgs{Graph: 7, ArenaOffset: graphAt, Length: uint64(n)})
		b.launchGraph(7)
		b.launchGraph(7, 20, 1)
		b.queue(cuda.OpGraphDestroy, 1, 0, &cuda.GraphDestroyArgs{Graph: 7})
		b.survives()
	})
}
