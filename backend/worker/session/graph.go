package session

import (
	"encoding/binary"
	"slices"
	"strings"
	"sync/atomic"

	"pegasus/accel"
	"pegasus/backend/gate"
	"pegasus/backend/worker/handles"
	"pegasus/cuda"
)

const (
	// maxGraphBytes bounds the total size of a guest process's graphs: their descriptions, plus graphNodeBytes for the
	// state of each node, in the worker and in the device.
	maxGraphBytes  = 256 << 20
	graphNodeBytes = 256
	// maxGraphRecords bounds a graph's nodes that record events: each launch carries data for each of them.
	maxGraphRecords = 256
)

// graph is an executable graph of the guest.
type graph struct {
	g         *guestContext
	bytes     uint64 // counted against maxGraphBytes
	nodes     []graphNode
	records   int // number of nodes that record events
	hostNodes int // number of nodes that are host callbacks
	class     gate.Class
	usage     accel.Class // of the whole graph
	native    accel.Graph // nil: the nodes are submitted one by one
	last      accel.Event // for submission one by one: recorded after the latest launch
	cost      int64       // predicted ns, used before the first launch
	measured  *kernelCost // measured cost of recent launches
	name      string      // names of its kernels, each once, in the order of their nodes
}

// graphs owns the executable graphs of the guest process, by their ids, and handles the calls about them. The poller
// owns it.
type graphs struct {
	base
	modules   *modules
	streams   *streams
	events    *events
	textures  *textures
	callbacks *callbacks
	table     handles.Table[*graph]
	bytes     uint64 // counted against maxGraphBytes
}

func (h *graphs) dropContext(g *guestContext) {
	h.table.DeleteFunc(func(gr *graph) bool {
		if gr.g == g {
			h.destroyGraph(gr)
		}
		return gr.g == g
	})
}

// graphNode is a node: work, or an event that it records or waits for.
type graphNode struct {
	work         accel.Work // nil: none
	record, wait uint64     // an event's id, or 0
}

// GraphCreate replies with a pending error of the context, if there is one, since it calls the device.
func (h *graphs) GraphCreate(c cuda.Call, a cuda.GraphCreateArgs) cuda.Result {
	g, r := h.contexts.of(c)
	if r != cuda.Success {
		return r
	}
	old, r := h.table.Get(a.Graph)
	if live := r == cuda.Success; live && old.g != g {
		return cuda.ErrorInvalidHandle
	} else if !live {
		old = nil
		if r := h.table.Available(a.Graph); r != cuda.Success {
			return r
		}
	}
	shared, ok := h.host.Arena(a.ArenaOffset, a.Length)
	if !ok {
		return cuda.ErrorInvalidValue
	}
	if a.Length > maxGraphBytes-h.bytes {
		return cuda.ErrorOutOfMemory
	}
	nodes, ok := cuda.DecodeGraph(append([]byte(nil), shared...)) // a copy, since the guest may write to it
	if !ok {
		return cuda.ErrorInvalidValue
	}
	bytes := a.Length + graphNodeBytes*uint64(len(nodes))
	if bytes > maxGraphBytes-h.bytes {
		return cuda.ErrorOutOfMemory
	}
	made, r := h.newGraph(g, nodes, old)
	if r != cuda.Success {
		return g.report(r)
	}
	made.bytes = bytes
	if old != nil {
		made.measured = old.measured
		made.measured.name = made.name
		made.last, old.last = old.last, nil
		if made.native != nil {
			old.native = nil // the new graph owns it
		}
		h.table.Take(a.Graph)
		h.destroyGraph(old)
	}
	h.table.Put(a.Graph, made)
	h.bytes += made.bytes
	return cuda.Success
}

func (h *graphs) GraphDestroy(_ cuda.Call, a cuda.GraphDestroyArgs) cuda.Result {
	gr, r := h.table.Take(a.Graph)
	if r == cuda.Success {
		h.destroyGraph(gr)
	}
	return r
}

func (h *graphs) destroyGraph(gr *graph) {
	h.bytes -= gr.bytes
	if gr.native != nil {
		gr.native.Destroy()
	}
	if gr.last != nil {
		gr.last.Destroy()
	}
}

// newGraph checks the guest's description and returns a graph. It replaces old, if not nil.
func (h *graphs) newGraph(g *guestContext, described []cuda.GraphNode, old *graph) (*graph, cuda.Result) {
	gr := &graph{g: g, class: gate.Copy, usage: accel.CopyDevice, measured: &kernelCost{}, nodes: make([]graphNode, len(described))}
	whole := make([]accel.GraphNode, len(described))
	for i, d := range described {
		n, r := h.newGraphNode(gr, d)
		if r != cuda.Success {
			return nil, r
		}
		gr.nodes[i], whole[i] = n, accel.GraphNode{Work: n.work, After: d.After}
	}
	if gr.records > maxGraphRecords {
		return nil, cuda.ErrorNotSupported
	}
	gr.measured.name = gr.name
	gr.measured.identity = mix(uint64(len(described)), uint64(gr.cost))
	r := cuda.ErrorNotSupported
	if maker := g.can.Graphs; maker != nil && !gr.hasEvents() {
		var before accel.Graph
		if old != nil {
			before = old.native
		}
		gr.native, r = maker.NewGraph(whole, before)
	}
	if r == cuda.ErrorNotSupported {
		gr.native, r = nil, cuda.Success
	}
	return gr, r
}

func (gr *graph) hasEvents() bool {
	for i := range gr.nodes {
		if n := &gr.nodes[i]; n.record != 0 || n.wait != 0 {
			return true
		}
	}
	return false
}

// newGraphNode returns a checked node.
func (h *graphs) newGraphNode(gr *graph, d cuda.GraphNode) (n graphNode, r cuda.Result) {
	switch d.Op {
	case cuda.OpNop:
		return n, wellFormed(len(d.Payload) == 0)
	case cuda.OpLaunch:
		var a cuda.LaunchArgs
		if !a.Decode(d.Payload) {
			return n, cuda.ErrorInvalidValue
		}
		n.work, r = h.graphLaunch(gr, a)
	case cuda.OpCopy:
		var a cuda.CopyArgs
		if !a.Decode(d.Payload) || a.Release != 0 || len(a.Data) != 0 {
			return n, cuda.ErrorInvalidValue
		}
		n.work, r = h.graphCopy(gr, a)
	case cuda.OpFill:
		var a cuda.FillArgs
		if !a.Decode(d.Payload) {
			return n, cuda.ErrorInvalidValue
		}
		n.work, r = h.graphFill(gr, a)
	case cuda.OpHostCallback:
		var a cuda.HostCallbackArgs
		if !a.Decode(d.Payload) || a.Callback == 0 {
			return n, cuda.ErrorInvalidValue
		}
		gr.hostNodes++
		n.work = h.graphHost(gr.g, a.Callback)
	case cuda.OpEventRecord:
		var a cuda.EventRecordArgs
		if !a.Decode(d.Payload) || a.Event == 0 {
			return n, cuda.ErrorInvalidValue
		}
		gr.records++
		n.record = a.Event
	case cuda.OpStreamWaitEvent:
		var a cuda.StreamWaitEventArgs
		if !a.Decode(d.Payload) || a.Event == 0 {
			return n, cuda.ErrorInvalidValue
		}
		n.wait = a.Event
	default:
		return n, cuda.ErrorNotSupported
	}
	return n, r
}

func wellFormed(is bool) cuda.Result {
	if is {
		return cuda.Success
	}
	return cuda.ErrorInvalidValue
}

// uses records that a node holds an engine. If one node holds the engine for kernels, the whole graph counts as compute
// work.
func (gr *graph) uses(c accel.Class) {
	if gate.ClassOf(c) == gate.Compute {
		gr.class = gate.Compute
	}
	if c == accel.Compute {
		gr.usage = c
	}
}

// maxNameLength is the length of a graph's name from which no further kernels are added.
const maxNameLength = 128

// addKernelName adds a kernel to the graph's name.
func (gr *graph) addKernelName(kernel string) {
	switch {
	case gr.name == "":
		gr.name = kernel
	case len(gr.name) < maxNameLength && !slices.Contains(strings.Split(gr.name, ", "), kernel):
		gr.name += ", " + kernel
	}
}

func (h *graphs) graphLaunch(gr *graph, a cuda.LaunchArgs) (accel.Work, cuda.Result) {
	m, r := h.modules.table.Get(a.Function >> 32)
	if r != cuda.Success {
		return nil, r
	}
	index := uint32(a.Function)
	if m.g != gr.g || index >= uint32(len(m.costs)) {
		return nil, cuda.ErrorInvalidHandle
	}
	w := launchOf(m, a)
	gr.addKernelName(m.costs[index].name)
	gr.uses(accel.Compute)
	gr.cost += h.work.predict(&m.costs[index], &w)
	return &w, cuda.Success
}

func (h *graphs) graphCopy(gr *graph, a cuda.CopyArgs) (accel.Work, cuda.Result) {
	b, dst, src := endsOf(a)
	if b.width == 0 || b.height == 0 || b.depth == 0 {
		return nil, cuda.Success
	}
	m := checked{ok: true}
	bytes := m.mul(m.mul(b.width, b.height), b.depth)
	if !m.ok {
		return nil, cuda.ErrorInvalidValue
	}
	w := &accel.Copy{Width: b.width, Height: b.height, Depth: b.depth}
	var r cuda.Result
	if w.Dst, r = h.textures.resolve(dst, b, gr.g); r != cuda.Success {
		return nil, r
	}
	if w.Src, r = h.textures.resolve(src, b, gr.g); r != cuda.Success {
		return nil, r
	}
	gr.uses(engines[direction(dst.kind, src.kind)])
	gr.cost += h.work.costs.predictCopy(dst.kind, src.kind, bytes)
	return w, cuda.Success
}

func (h *graphs) graphFill(gr *graph, a cuda.FillArgs) (accel.Work, cuda.Result) {
	w, bytes, r := fillOf(a)
	if r != cuda.Success || bytes == 0 {
		return nil, r
	}
	gr.uses(accel.CopyDevice)
	gr.cost += h.work.costs.predictCopy(cuda.EndDevice, cuda.EndDevice, bytes)
	return &w, cuda.Success
}

// graphHost returns the work of a host callback in a graph. The callback becomes due at each launch, so its id is
// registered only while it is due.
func (h *graphs) graphHost(g *guestContext, id uint64) accel.HostFunc {
	return accel.HostFunc{Due: func(status cuda.Result, finished func()) {
		k, r := h.callbacks.add(id, g)
		if r != cuda.Success {
			g.fail(noStream, r)
			finished()
			return
		}
		h.callbacks.deliver(id, k, status, finished)
	}}
}

// graphRecord is a launch's data for a node that records an event.
type graphRecord struct{ event, serial uint64 }

const graphRecordBytes = 16

func readRecords(b []byte) (records []graphRecord) {
	for ; len(b) >= graphRecordBytes; b = b[graphRecordBytes:] {
		records = append(records, graphRecord{binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])})
	}
	return records
}

// GraphLaunch completes the records' serials also when it fails, like EventRecord.
func (h *graphs) GraphLaunch(c cuda.Call, a cuda.GraphLaunchArgs) cuda.Result {
	records := readRecords(a.Records)
	r := h.launchGraph(c, a, records)
	if r != cuda.Success {
		for _, rec := range records {
			h.events.completeRecord(rec.event, rec.serial)
		}
	}
	return r
}

func (h *graphs) launchGraph(c cuda.Call, a cuda.GraphLaunchArgs, records []graphRecord) cuda.Result {
	gr, r := h.table.Get(a.Graph)
	if r != cuda.Success {
		return r
	}
	g, st, r := h.streams.forWork(c)
	if r != cuda.Success {
		return r
	}
	if gr.g != g {
		return cuda.ErrorInvalidHandle
	}
	if len(a.Records) != gr.records*graphRecordBytes {
		return cuda.ErrorInvalidValue
	}
	if len(gr.nodes) == 0 {
		return cuda.Success
	}
	if gr.measured.perBlock.Load() == 0 && !gr.prepared() {
		h.gate.Prepare(gr.prepare)
	}
	b := h.work.newSubmission(g, c.Stream)
	b.cost, b.blocks, b.nodes, b.hostNodes = gr.measured, 1, len(gr.nodes), gr.hostNodes
	p := &replay{h: h, gr: gr, stream: c.Stream, records: records, charge: b.spent}
	h.callbacks.expect(gr.hostNodes)
	if r = h.work.admit(b, gr.class, gr.predict()); r == cuda.Success {
		r = h.work.submitted(b, p.submit(st, accel.Replay{Graph: gr.native, Spent: b.spent}, b.ended))
	}
	if r != cuda.Success {
		h.callbacks.expect(-gr.hostNodes)
	}
	return r
}

// prepare compiles the graph's kernels.
func (gr *graph) prepare() {
	for i := range gr.nodes {
		if w, ok := gr.nodes[i].work.(*accel.Launch); ok {
			gr.g.prepare(w)
		}
	}
}

// prepared reports whether prepare has nothing to do.
func (gr *graph) prepared() bool {
	return !slices.ContainsFunc(gr.nodes, func(n graphNode) bool {
		w, ok := n.work.(*accel.Launch)
		return ok && !gr.g.prepared(w)
	})
}

// predict returns a launch's predicted time in ns: that of recent launches, or the sum of its nodes'.
func (gr *graph) predict() int64 {
	if gr.measured.perBlock.Load() != 0 {
		return gr.measured.predict(1)
	}
	return min(gr.cost, maxPredicted)
}

// replay is one launch of a graph.
type replay struct {
	h       *graphs
	gr      *graph
	stream  uint64
	records []graphRecord // not made yet

	// For nodes that are submitted one by one.
	left       atomic.Int64 // nodes that have not ended, plus one for the submission
	firstError atomic.Int32 // the first error
	firstStart atomic.Int64
	engineTime atomic.Int64 // ns for which ended nodes held engines
	charged    atomic.Int64 // ns of these that were charged
	charge     accel.Spent
	spent      accel.Spent // the method value p.spend
	done       accel.Done
}

// spend charges a part of a node's use.
func (p *replay) spend(u accel.Usage) {
	p.charged.Add(max(u.End-u.Start, 0))
	p.charge(u)
}

// submit submits a graph to the device, as a whole if the device supports it.
func (p *replay) submit(st accel.Stream, w accel.Work, done accel.Done) cuda.Result {
	if p.gr.native != nil {
		return p.gr.g.ctx.Submit(st, w, done)
	}
	return p.submitNodes(st, done)
}

// submitNodes submits the nodes in their order to the launch's stream, so that each follows its dependencies. They wait
// for the end of a launch of the graph in another stream. It stops at the first node that the device rejects.
func (p *replay) submitNodes(st accel.Stream, done accel.Done) cuda.Result {
	gr, ctx := p.gr, p.gr.g.ctx
	if gr.last == nil {
		e, r := ctx.NewEvent(uint32(cuda.EventFlagDisableTiming))
		if r != cuda.Success {
			return r
		}
		gr.last = e
	}
	p.done, p.spent = done, p.spend
	p.left.Store(2)
	if r := ctx.Submit(st, accel.WaitEvent{Event: gr.last}, p.ended); r != cuda.Success {
		return r
	}
	for i := range gr.nodes {
		if r := p.submitNode(st, &gr.nodes[i]); r != cuda.Success {
			p.firstError.CompareAndSwap(0, int32(r))
			break
		}
	}
	for _, rec := range p.records {
		p.h.events.completeRecord(rec.event, rec.serial)
	}
	p.left.Add(1)
	if r := ctx.Submit(st, accel.Record{Event: gr.last}, p.ended); r != cuda.Success {
		p.ended(r, accel.Usage{})
	}
	p.ended(cuda.Success, accel.Usage{})
	return cuda.Success
}

// submitNode submits a node.
func (p *replay) submitNode(st accel.Stream, n *graphNode) cuda.Result {
	h, g := p.h, p.gr.g
	w, done := n.work, accel.Done(p.ended)
	switch {
	case n.record != 0:
		rec := p.records[0]
		e, r := h.events.table.Get(rec.event)
		switch {
		case r != cuda.Success:
			return r
		case e.g != g || rec.event != n.record:
			return cuda.ErrorInvalidHandle
		}
		e.stream = p.stream
		w, done = e.record, func(r cuda.Result, u accel.Usage) {
			e.complete(h.host, rec.event, rec.serial)
			p.ended(r, u)
		}
	case n.wait != 0:
		e, r := h.events.table.Get(n.wait)
		if r != cuda.Success {
			return r
		}
		if w = e.wait; e.g != g {
			w = waitElsewhere(e.e)
		}
	case w == nil:
		return cuda.Success
	}
	switch w := w.(type) {
	case *accel.Launch:
		w.Spent = p.spent
	case *accel.Copy:
		w.Spent = p.spent
	case *accel.Fill:
		w.Spent = p.spent
	}
	p.left.Add(1)
	r := g.ctx.Submit(st, w, done)
	switch {
	case r != cuda.Success:
		p.left.Add(-1)
	case n.record != 0:
		p.records = p.records[1:]
	}
	return r
}

// ended counts an ended node, and reports the launch's result and use after the last one.
func (p *replay) ended(r cuda.Result, u accel.Usage) {
	if r != cuda.Success {
		p.firstError.CompareAndSwap(0, int32(r))
	}
	if u.End > u.Start {
		p.firstStart.CompareAndSwap(0, u.Start)
		total := p.engineTime.Add(u.End - u.Start)
		if uncharged := total - p.charged.Load(); uncharged > 0 { // of a device that does not report parts
			p.spend(accel.Usage{Class: u.Class, Start: u.End - uncharged, End: u.End})
		}
	}
	if p.left.Add(-1) == 0 {
		from := p.firstStart.Load()
		p.done(cuda.Result(p.firstError.Load()), accel.Usage{Class: p.gr.usage, Start: from, End: from + p.engineTime.Load()})
	}
}
