package worker

import (
	"math/bits"
	"sync"

	"pegasus/accel"
	"pegasus/backend/gate"
	"pegasus/cuda"
)

// module is a loaded module with its kernels' measured costs.
type module struct {
	g     *guestContext
	m     accel.Module
	bytes uint64       // of its image
	costs []kernelCost // by function
}

// fewParams is the number of parameter bytes up to which a launch's parameters are not counted in flow.kept.
const fewParams = 1 << 10

// launchCooperative is a flag of a launch: its blocks can synchronize with each other. The second to fourth byte hold
// the cluster's dimensions.
const launchCooperative = 1

// Launch replies when the kernel is queued. The device has read its parameters by then.
func (s *session) Launch(c cuda.Call, a cuda.LaunchArgs) cuda.Result {
	g, st, r := s.stream(c)
	if r != cuda.Success {
		return r
	}
	m, r := s.modules.get(a.Function >> 32)
	if r != cuda.Success {
		return r
	}
	index := uint32(a.Function)
	if m.g != g || index >= uint32(len(m.costs)) {
		return cuda.ErrorInvalidHandle
	}
	w := &s.launch
	*w = launchOf(m, a)
	cost := &m.costs[index]
	sub := s.newSubmission(g, c.Stream)
	w.Spent = sub.spent
	if cost.perBlock.Load() == 0 && !g.prepared(w) {
		s.gate.Prepare(func() { g.prepare(w) })
	}
	sub.cost, sub.blocks = cost, blockCount(a.Grid)
	if len(a.Params) > fewParams {
		sub.params = len(a.Params)
		s.flow.kept.Add(int64(sub.params))
	}
	return s.submitGated(sub, st, w, gate.Compute, s.predict(cost, w))
}

// prepare compiles a kernel before its first launch. Admitted work holds its domain's turn: other domains wait for it,
// and should not wait for a compiler.
func (g *guestContext) prepare(w *accel.Launch) {
	if p := g.can.Preparation; p != nil {
		p.Prepare(w)
	}
}

// prepared reports whether prepare has nothing to do, so that a launch need not wait for a preparation slot.
func (g *guestContext) prepared(w *accel.Launch) bool {
	p := g.can.Preparation
	return p == nil || p.Prepared(w)
}

// launchOf returns the guest's launch. The module has the function.
func launchOf(m *module, a cuda.LaunchArgs) accel.Launch {
	return accel.Launch{
		Module: m.m, Function: int(uint32(a.Function)), Grid: a.Grid, Block: a.Block, SharedBytes: a.SharedBytes, Params: a.Params,
		Cooperative: a.Flags&launchCooperative != 0, Cluster: [3]uint32{a.Flags >> 8 & 0xff, a.Flags >> 16 & 0xff, a.Flags >> 24},
	}
}

// predict returns a launch's predicted time in ns, from the device, or else from the kernel's measured cost.
func (s *session) predict(cost *kernelCost, w *accel.Launch) int64 {
	if s.predictor != nil {
		if ns := s.predictor.Predict(w); ns > 0 {
			return ns
		}
	}
	return cost.predict(blockCount(w.Grid))
}

// blockCount returns the number of blocks of a grid; the device rejects a grid too large for it.
func blockCount(grid [3]uint32) uint64 {
	return uint64(grid[0]) * uint64(grid[1]&0xffff) * uint64(grid[2]&0xffff)
}

// submitGated waits for admission and submits work to the device. It takes ownership of b.
func (s *session) submitGated(b *submission, st accel.Stream, w accel.Work, class gate.Class, predicted int64) cuda.Result {
	s.begin()
	s.asking.b, s.asking.w = b, w
	t, err := s.admit(class, predicted)
	if err != nil {
		b.recycle()
		s.ended()
		return cuda.ErrorDeinitialized // the reply reaches no guest
	}
	g := b.g
	b.ticket = t
	b.ticket.Name = b.name()
	var r cuda.Result
	if b.replay == nil {
		r = g.ctx.Submit(st, w, b.ended)
	} else {
		r = b.replay.submit(st, w, b.ended)
	}
	if r != cuda.Success {
		b.recycle()
		s.ended()
		s.gate.Finish(t, accel.Usage{Class: accel.NumClasses})
		return g.report(r)
	}
	return cuda.Success
}

// submission is work submitted to the device, with the steps at its end. Submissions are pooled, since a guest may
// submit hundreds of thousands a second.
type submission struct {
	s      *session
	g      *guestContext
	stream uint64
	ticket gate.Ticket
	ended  accel.Done // the method value b.end
	spent  accel.Spent

	cost   *kernelCost // of a kernel; nil for a copy or fill
	blocks uint64

	params int     // parameter bytes counted in flow.kept
	replay *replay // of a graph; else nil

	transfer transfer // of a copy or fill
}

var submissions sync.Pool

func (s *session) newSubmission(g *guestContext, stream uint64) *submission {
	b, _ := submissions.Get().(*submission)
	if b == nil {
		b = new(submission)
		b.ended, b.spent = b.end, b.spend
	}
	b.s, b.g, b.stream = s, g, stream
	return b
}

func (b *submission) recycle() {
	t := &b.transfer
	if kept := b.params + len(t.inline); kept > 0 {
		b.s.flow.kept.Add(-int64(kept))
	}
	t.inline, t.into, t.release = t.inline[:0], nil, 0
	b.s, b.g, b.cost, b.replay, b.params = nil, nil, nil, nil, 0
	submissions.Put(b)
}

// name returns the name of the kernel, or of a graph's kernels.
func (b *submission) name() string {
	switch {
	case b.replay != nil:
		return b.replay.gr.name
	case b.cost != nil:
		return b.cost.name
	default:
		return ""
	}
}

// spend charges a part of the work's use.
func (b *submission) spend(u accel.Usage) { b.s.gate.Spend(&b.ticket, u) }

func (b *submission) end(r cuda.Result, u accel.Usage) {
	s := b.s
	s.gate.Finish(b.ticket, u)
	switch ns := max(u.End-u.Start, 0); {
	case b.replay != nil:
		gr := b.replay.gr
		s.callbacks.expect(-gr.hosts)
		gr.taken.learn(1, ns)
		b.g.fail(b.stream, r)
	case b.cost != nil:
		b.cost.learn(b.blocks, ns)
		b.g.fail(b.stream, r)
	default:
		s.transferred(b.g, &b.transfer, r, ns)
	}
	b.recycle()
	s.ended()
}

// admit blocks until the gate admits a request. While work in flight may depend on the guest, the in-flight limit does
// not apply, and callback reports are taken from the ring.
func (s *session) admit(class gate.Class, predicted int64) (gate.Ticket, error) {
	t, err := s.gate.Acquire(class, predicted, s.dependent(), s.whileHeld, s.about)
	s.hold(false)
	return t, err
}

// about returns the properties of the work being submitted, for policies that estimate costs. Only waiting work pays
// for it.
func (s *session) about() gate.About {
	b := s.asking.b
	if p := b.replay; p != nil {
		k := p.gr.taken
		return gate.About{Key: k.identity >> 1, Known: k.perBlock.Load() != 0, Size: uint64(len(p.gr.nodes))}
	}
	if w, ok := s.asking.w.(*accel.Launch); ok {
		key := b.cost.identity
		threads := b.blocks
		for i := range w.Block {
			key = mix(mix(key, uint64(w.Grid[i])), uint64(w.Block[i]))
			threads *= max(uint64(min(w.Block[i], 1024)), 1)
		}
		return gate.About{Key: mix(key, uint64(w.SharedBytes)) >> 1, Known: b.cost.perBlock.Load() != 0, Size: threads}
	}
	t := &b.transfer
	way := direction(t.dst, t.src)
	size := t.bytes
	if t.class() == gate.Compute {
		size = 0 // for compute, Size counts threads
	}
	return gate.About{Key: mix(uint64(way), t.bytes) >> 1, Known: s.costs.perByte[way].Load() != 0, Size: size}
}

// mix returns a hash of a previous hash and n.
func mix(hash, n uint64) uint64 {
	hi, lo := bits.Mul64(hash^0x9e37_79b9_7f4a_7c15, n^0xbf58_476d_1ce4_e5b9)
	return hi ^ lo
}

// hold publishes to the guest whether a call waits at the gate.
func (s *session) hold(held bool) {
	if held != s.held {
		s.held = held
		s.host.SetHeld(held)
	}
}

func (s *session) ModuleLoad(c cuda.Call, a cuda.ModuleLoadArgs) (out cuda.ModuleLoadResult, r cuda.Result) {
	out, r = s.loadModule(c, a)
	if r != cuda.Success {
		// The log explains the error, so its length is sent with it.
		s.answer(c, s.peek(c).report(r), out.Append(nil))
		return out, cuda.Deferred
	}
	return out, r
}

func (s *session) loadModule(c cuda.Call, a cuda.ModuleLoadArgs) (out cuda.ModuleLoadResult, r cuda.Result) {
	g, r := s.roomyContext(c)
	if r != cuda.Success {
		return out, r
	}
	if a.Module>>32 != 0 {
		return out, cuda.ErrorInvalidHandle
	}
	if r := s.modules.free(a.Module); r != cuda.Success {
		return out, r
	}
	x, image, r := s.exchange(a.ImageOffset, a.ImageLength, a.LayoutOffset, a.LayoutCapacity, a.LogOffset, a.LogCapacity)
	if r != cuda.Success {
		return out, r
	}
	var m accel.Module
	var text string
	s.gate.Prepare(func() { m, text, r = g.ctx.LoadModule(image) })
	out.LogLength = uint64(copy(x.log, text))
	if r != cuda.Success {
		return out, r
	}
	layout := m.Layout()
	if out.LayoutLength, r = x.put(layout); r != cuda.Success {
		m.Unload()
		return out, r
	}
	s.imageBytes += a.ImageLength
	costs := make([]kernelCost, len(layout.Functions))
	for i := range costs {
		costs[i].name = layout.Functions[i].Name
		costs[i].identity = mix(identity(costs[i].name), a.ImageLength)
	}
	s.modules.put(a.Module, &module{g: g, m: m, bytes: a.ImageLength, costs: costs})
	return out, cuda.Success
}

// exchange is the guest's buffers for an image's layout and log.
type exchange struct{ layout, log []byte }

// exchange returns the parts of the arena, and a copy of the image, since the guest may write to it meanwhile.
func (s *session) exchange(image, imageLength, layout, layoutCapacity, log, logCapacity uint64) (x exchange, copied []byte, r cuda.Result) {
	shared, ok := s.host.Arena(image, imageLength)
	layoutTo, ok2 := s.host.Arena(layout, layoutCapacity)
	logTo, ok3 := s.host.Arena(log, logCapacity)
	if !ok || !ok2 || !ok3 {
		return x, nil, cuda.ErrorInvalidValue
	}
	if imageLength > s.mostImages()-s.imageBytes {
		return x, nil, cuda.ErrorOutOfMemory
	}
	return exchange{layoutTo, logTo}, append([]byte(nil), shared...), cuda.Success
}

// mostImages returns the bound on the total bytes of all modules' images.
func (s *session) mostImages() uint64 {
	if s.can.Habits&cuda.TakesMachineCode != 0 {
		return maxMachineCode
	}
	return maxImages
}

// put writes a layout completely or not at all, and returns its length.
func (x exchange) put(l *cuda.ModuleLayout) (length uint64, r cuda.Result) {
	blob := l.Append(nil)
	if len(blob) > len(x.layout) {
		return uint64(len(blob)), cuda.ErrorInvalidValue
	}
	return uint64(copy(x.layout, blob)), cuda.Success
}

// ModuleInspect serves libraries, which programs may inspect before they have a context.
func (s *session) ModuleInspect(c cuda.Call, a cuda.ModuleInspectArgs) (out cuda.ModuleInspectResult, r cuda.Result) {
	out, r = s.inspectModule(a)
	if r != cuda.Success {
		s.answer(c, r, out.Append(nil)) // with the log, as for ModuleLoad
		return out, cuda.Deferred
	}
	return out, r
}

func (s *session) inspectModule(a cuda.ModuleInspectArgs) (out cuda.ModuleInspectResult, r cuda.Result) {
	if a.Device != 0 {
		return out, cuda.ErrorInvalidDevice
	}
	x, image, r := s.exchange(a.ImageOffset, a.ImageLength, a.LayoutOffset, a.LayoutCapacity, a.LogOffset, a.LogCapacity)
	if r != cuda.Success {
		return out, r
	}
	layout, text, r := s.device.Inspect(image)
	out.LogLength = uint64(copy(x.log, text))
	if r == cuda.Success {
		out.LayoutLength, r = x.put(layout)
	}
	return out, r
}

func (s *session) ModuleUnload(_ cuda.Call, a cuda.ModuleUnloadArgs) cuda.Result {
	m, r := s.modules.take(a.Module)
	if r == cuda.Success {
		s.imageBytes -= m.bytes
		m.m.Unload()
	}
	return r
}

// driverVersion is the highest version that cuDriverGetVersion returns: CUDA 12.4.
const driverVersion = 12040

// DeviceInfo describes the one device that is visible to the process.
func (s *session) DeviceInfo(_ cuda.Call, a cuda.DeviceInfoArgs) (out cuda.DeviceInfoResult, r cuda.Result) {
	to, ok := s.host.Arena(a.ArenaOffset, a.Capacity)
	if !ok {
		return out, cuda.ErrorInvalidValue
	}
	d := s.device.Snapshot()
	if _, quota := s.gate.Memory(gate.DeviceMemory); quota < d.TotalMem {
		d.TotalMem = quota
	}
	version := uint32(driverVersion)
	if v := s.can.Version; v != 0 {
		version = min(version, v)
	}
	d.Attributes[cuda.NoAttribute] = s.can.Habits
	blob := (&cuda.DeviceSnapshot{DriverVersion: version, Devices: []cuda.Device{d}}).Append(nil)
	if len(blob) > len(to) {
		return out, cuda.ErrorInvalidValue
	}
	return cuda.DeviceInfoResult{Length: uint64(copy(to, blob))}, cuda.Success
}
