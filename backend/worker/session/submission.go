package session

import (
	"math/bits"
	"sync"
	"sync/atomic"

	"pegasus/accel"
	"pegasus/backend/gate"
	"pegasus/cuda"
)

// submitter submits work to the device: through the gate where the work needs an engine, and within the bounds of
// backpressure. The poller owns it; its counters are atomic, since the device's callbacks change them.
type submitter struct {
	*core
	predictor accel.Predictor           // nil if the device predicts nothing
	queue     interface{ Queued() int } // nil if the device counts nothing
	kernels   accel.WaitFinder          // nil if the device does not detect kernels that wait
	load      backpressure
	waits     atomic.Int32 // streams that wait for a memory word
	costs     costs
	callbacks *callbacks
	poller    *poller // reads ahead while a call waits

	admitting    *submission // the one that waits for admission
	shownWaiting bool        // the flag by which the guest sees that a call waits is set
}

// use sets the device.
func (q *submitter) use() {
	q.predictor, q.kernels = q.can.Prediction, q.can.Waiting
	if c := q.can.Control; c != nil {
		q.queue = c
	}
}

// submit submits work that needs no admission to the device. done is the context's ended, or calls it.
func (q *submitter) submit(g *guestContext, st accel.Stream, w accel.Work, done accel.Done) cuda.Result {
	q.begin()
	r := g.ctx.Submit(st, w, done)
	if r != cuda.Success {
		q.ended()
	}
	return g.report(r)
}

// submitGated waits for admission and submits work to the device. It takes ownership of b.
func (q *submitter) submitGated(b *submission, st accel.Stream, w accel.Work, class gate.Class, predicted int64) cuda.Result {
	if r := q.admit(b, class, predicted); r != cuda.Success {
		return r
	}
	return q.submitted(b, b.g.ctx.Submit(st, w, b.ended))
}

// admit blocks until the gate admits b, which the caller then submits to the device; submitted has to follow. If the
// session ends first, admit returns an error and releases b. While work in flight may depend on the guest, the
// in-flight limit does not apply, and callback reports are taken from the ring.
func (q *submitter) admit(b *submission, class gate.Class, predicted int64) cuda.Result {
	q.begin()
	q.admitting = b
	t, err := q.gate.Acquire(class, predicted, q.dependent(), q.poller.whileWaiting, q.about)
	q.showWaiting(false)
	if err != nil {
		b.recycle()
		q.ended()
		return cuda.ErrorDeinitialized // the reply reaches no guest
	}
	b.ticket = t
	if b.cost != nil {
		b.ticket.Name = b.cost.name
	}
	return cuda.Success
}

// submitted returns the result r of the submission of b to the device. If r is an error, it releases b; else the device
// has b, which may have ended already.
func (q *submitter) submitted(b *submission, r cuda.Result) cuda.Result {
	if r == cuda.Success {
		return r
	}
	g, t := b.g, b.ticket
	b.recycle()
	q.ended()
	q.gate.Finish(t, accel.Usage{Class: accel.NumClasses})
	return g.report(r)
}

// submission is work submitted to the device, with the steps at its end. Submissions are pooled, since a guest may
// submit hundreds of thousands a second.
type submission struct {
	q      *submitter
	g      *guestContext
	stream uint64
	ticket gate.Ticket
	ended  accel.Done // the method value b.end
	spent  accel.Spent

	cost      *kernelCost   // of a kernel or graph; nil for a copy or fill
	launch    *accel.Launch // of a kernel, until it is admitted
	blocks    uint64        // of a kernel; 1 for a graph
	params    int           // parameter bytes counted in backpressure.kept
	nodes     int           // of a graph
	hostNodes int           // of a graph: nodes that are host callbacks

	transfer transfer // of a copy or fill
}

var submissions sync.Pool

func (q *submitter) newSubmission(g *guestContext, stream uint64) *submission {
	b, _ := submissions.Get().(*submission)
	if b == nil {
		b = new(submission)
		b.ended, b.spent = b.end, b.spend
	}
	b.q, b.g, b.stream = q, g, stream
	return b
}

func (b *submission) recycle() {
	t := &b.transfer
	if kept := b.params + len(t.inline); kept > 0 {
		b.q.load.kept.Add(-int64(kept))
	}
	t.inline, t.into, t.release = t.inline[:0], nil, 0
	b.q, b.g, b.cost, b.launch, b.params, b.nodes, b.hostNodes = nil, nil, nil, nil, 0, 0, 0
	submissions.Put(b)
}

// spend charges a part of the work's use.
func (b *submission) spend(u accel.Usage) { b.q.gate.Spend(&b.ticket, u) }

func (b *submission) end(r cuda.Result, u accel.Usage) {
	q := b.q
	q.gate.Finish(b.ticket, u)
	if ns := max(u.End-u.Start, 0); b.cost != nil {
		q.callbacks.expect(-b.hostNodes)
		b.cost.learn(b.blocks, ns)
		b.g.fail(b.stream, r)
	} else {
		q.transferred(b.g, &b.transfer, r, ns)
	}
	b.recycle()
	q.ended()
}

// about returns the properties of the work that waits for admission, for policies that estimate costs. Only waiting
// work pays for it.
func (q *submitter) about() gate.About {
	b := q.admitting
	if b.nodes != 0 {
		return gate.About{Key: b.cost.identity >> 1, Known: b.cost.perBlock.Load() != 0, Size: uint64(b.nodes)}
	}
	if w := b.launch; w != nil {
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
	return gate.About{Key: mix(uint64(way), t.bytes) >> 1, Known: q.costs.perByte[way].Load() != 0, Size: size}
}

// mix returns a hash of a previous hash and n.
func mix(hash, n uint64) uint64 {
	hi, lo := bits.Mul64(hash^0x9e37_79b9_7f4a_7c15, n^0xbf58_476d_1ce4_e5b9)
	return hi ^ lo
}

// showWaiting publishes to the guest whether a call waits for admission or capacity.
func (q *submitter) showWaiting(waits bool) {
	if waits != q.shownWaiting {
		q.shownWaiting = waits
		q.host.SetHeld(waits)
	}
}

// predict returns a launch's predicted time in ns, from the device, or else from the kernel's measured cost.
func (q *submitter) predict(cost *kernelCost, w *accel.Launch) int64 {
	if q.predictor != nil {
		if ns := q.predictor.Predict(w); ns > 0 {
			return ns
		}
	}
	return cost.predict(blockCount(w.Grid))
}

// transfer is the data for the end of a copy or fill.
type transfer struct {
	call     cuda.Call
	dst, src uint32 // kinds of its endpoints
	bytes    uint64
	release  uint32                    // release word of its source, or 0
	inline   []byte                    // copied from the packet, whose buffer the poller reuses
	reply    [cuda.MaxInlineReply]byte // data of the reply
	into     []byte                    // the part of reply that the copy fills
}

// class returns the gate class of its engine.
func (t *transfer) class() gate.Class { return gate.ClassOf(engines[direction(t.dst, t.src)]) }

// transferred completes a submitted copy or fill.
func (q *submitter) transferred(g *guestContext, t *transfer, r cuda.Result, ns int64) {
	q.host.Release(t.release)
	q.costs.learnCopy(t.dst, t.src, t.bytes, ns)
	switch {
	case !t.call.Reply:
		g.fail(t.call.Stream, r)
	case r != cuda.Success:
		q.answer(t.call, g.report(r), nil)
	default:
		q.answer(t.call, g.synced(t.call.Stream, r), t.into)
	}
}
