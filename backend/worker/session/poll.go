package session

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"pegasus/accel"
	"pegasus/callbuf"
	"pegasus/cuda"
	"pegasus/internal/timerslack"
)

// deferredPacket was read from the ring ahead of its turn.
type deferredPacket struct {
	callbuf.Header
	payload []byte
}

// maxDeferred bounds the number of deferred packets, and maxDeferredBytes their payloads. The bounds are large enough
// to find, behind a long queue, a callback's report and a write for which streams wait.
const (
	maxDeferred      = 64 << 10
	maxDeferredBytes = 64 << 20
)

// lookahead holds the packets that the poller has read while a call waits for admission or capacity.
type lookahead struct {
	packet   callbuf.Packet // the latest one
	deferred []deferredPacket
	bytes    int // in the payloads of deferred
}

// full reports whether the limit on deferred packets is reached.
func (l *lookahead) full() bool {
	return len(l.deferred) >= maxDeferred || l.bytes >= maxDeferredBytes
}

// take removes and returns the deferred packet i.
func (l *lookahead) take(i int) deferredPacket {
	p := l.deferred[i]
	l.bytes -= len(p.payload)
	l.deferred = slices.Delete(l.deferred, i, i+1)
	return p
}

// poller takes the calls from the ring in their order, dispatches them to their handlers, and replies. Its goroutine
// owns it, and with it the handlers and the submitter.
type poller struct {
	*core
	work  *submitter
	calls *calls
	spin  accel.Coordinator // nil if the device counts no seats

	// spinTime is how long the poller polls an empty ring, and a guest thread its reply slot, before it sleeps.
	spinTime   time.Duration
	slept      bool   // the last call of idle slept
	guestSpins bool   // the guest's threads may poll
	uncounted  uint64 // served calls not yet added to the gate page
	reply      [callbuf.MaxReplyData]byte

	lookahead lookahead
	reorder   reorder
}

// use sets the device.
func (p *poller) use() {
	p.spin = p.can.Coordination
	p.letGuestSpin(true)
}

// poll serves calls until the session ends.
func (p *poller) poll() {
	runtime.LockOSThread()
	timerslack.Restore()
	debug.SetPanicOnFault(true)
	defer func() {
		if v := recover(); v != nil {
			p.end(cuda.ErrorUnknown, fmt.Sprintf("bug: %v\n%s", v, debug.Stack()))
		}
	}()
	defer p.count()
	defer p.gate.Rest()
	var packet callbuf.Packet
	for !p.over() {
		switch {
		case p.serveDeferred():
		case !p.host.Ready():
			p.host.Publish()
			p.idle()
		default:
			p.takeSlot() // first: the guest looks for a packet's effects when the ring's head is beyond it
			if p.next(&packet) {
				p.serve(packet.Header, packet.Payload)
			}
		}
	}
}

// next takes a packet from the ring, or one that was put beside it: only a callback's report may come ahead of its
// turn. It ends the session of a guest that violates the protocol.
func (p *poller) next(packet *callbuf.Packet) bool {
	ok, err := p.host.Next(packet)
	return p.check(packet, ok, err)
}

// report takes a packet only from beside the ring.
func (p *poller) report(packet *callbuf.Packet) bool {
	ok, err := p.host.Report(packet)
	return p.check(packet, ok, err)
}

func (p *poller) check(packet *callbuf.Packet, ok bool, err error) bool {
	if ok && packet.Beside && packet.Op != uint16(cuda.OpCallbackWait) {
		ok, err = false, fmt.Errorf("packet of operation %d beside the ring: only callback reports are accepted there", packet.Op)
	}
	if err != nil {
		p.end(cuda.ErrorLaunchFailed, err.Error())
	}
	return ok
}

// serveDeferred serves the first deferred packet and reports whether there was one.
func (p *poller) serveDeferred() bool {
	l := &p.lookahead
	if len(l.deferred) == 0 {
		return false
	}
	first := l.deferred[0]
	l.deferred[0] = deferredPacket{}
	l.bytes -= len(first.payload)
	if l.deferred = l.deferred[1:]; len(l.deferred) == 0 {
		l.deferred = nil
	}
	p.takeSlot()
	p.serve(first.Header, first.payload)
	return true
}

// takeSlot waits until this worker may handle a call.
func (p *poller) takeSlot() {
	if !p.gate.MayHandle() {
		p.count()
		p.host.Publish()
		p.gate.Handle()
	}
}

// serve executes one call.
func (p *poller) serve(h callbuf.Header, payload []byte) {
	if p.uncounted++; p.uncounted == 64 {
		p.count()
	}
	c := cuda.Call{
		Op: cuda.Op(h.Op), Reply: h.Flags&callbuf.FlagReply != 0, ReplySlot: h.ReplySlot, ReplyTag: h.ReplyTag,
		Context: h.Context, Stream: h.Stream,
	}
	if !p.reorder.serving && c.Op != cuda.OpCallbackWait {
		p.reorder.next(c.Op, c.Stream, payload)
	}
	data, r, ok := cuda.Dispatch(p.calls, c, payload, p.reply[:0])
	switch {
	case !ok:
		p.refuse(c)
	case r == cuda.Deferred:
	case c.Reply:
		p.answer(c, r, data)
	case r != cuda.Success:
		p.calls.contexts.peek(c).fail(errorStream(c), r)
	}
}

// count adds the calls served since the last count to the gate page.
func (p *poller) count() {
	if p.uncounted != 0 {
		p.gate.Calls(p.uncounted)
		p.uncounted = 0
	}
}

// refuse replies to a packet that is not a valid call.
func (p *poller) refuse(c cuda.Call) {
	r := cuda.ErrorInvalidValue
	if !c.Op.Known() {
		r = cuda.ErrorNotSupported
	}
	if c.Reply {
		p.answer(c, r, nil)
	} else {
		p.calls.contexts.peek(c).fail(errorStream(c), r)
	}
}

// idle waits for the next packet: it polls for a short while, if a seat is free, and then sleeps.
func (p *poller) idle() {
	p.count()
	if p.slept || p.gate.Awaited() {
		p.gate.Rest()
	}
	if p.slept {
		p.slept = false
		callbuf.Yield() // the thread that woke the poller is often on this processor, and waits for it
	}
	if p.pollFor(p.spinTime) {
		return
	}
	p.gate.Rest()
	p.slept = true
	if !p.over() {
		p.host.Park(parkSlice)
	}
}

// pollFor polls the ring for a while and reports whether there is work.
func (p *poller) pollFor(d time.Duration) bool {
	if p.spin == nil {
		return callbuf.Spin(p.pollTime(d), p.ready)
	}
	busy := p.spin.Saturated()
	p.letGuestSpin(!busy)
	if busy || !p.spin.TrySpin() {
		return p.ready()
	}
	defer p.spin.EndSpin()
	return callbuf.Spin(d, p.ready)
}

// letGuestSpin publishes to the guest's threads whether they may poll for replies.
func (p *poller) letGuestSpin(may bool) {
	if may == p.guestSpins {
		return
	}
	p.guestSpins = may
	if may {
		p.host.SetSpin(p.pollTime(p.spinTime))
	} else {
		p.host.SetSpin(0)
	}
}

// pollTime returns d, or 0 on a host with one CPU, where the awaited process could not run meanwhile.
func (p *poller) pollTime(d time.Duration) time.Duration {
	if runtime.NumCPU() == 1 {
		return 0
	}
	return d
}

// ready reports whether the poller ends polling: for work, or to pass on its handling slot.
func (p *poller) ready() bool { return p.host.Ready() || p.over() || p.gate.Awaited() }

// whileWaiting is the poller's step while a call waits for admission or capacity. See admit.
func (p *poller) whileWaiting() (unbounded bool, slice time.Duration) {
	p.count()
	p.host.Publish()
	p.work.showWaiting(true)
	if !p.work.dependent() {
		if p.work.polling() {
			return true, time.Millisecond
		}
		return false, 100 * time.Millisecond
	}
	l := &p.lookahead
	packet := &l.packet
	if l.full() && p.report(packet) {
		p.serve(packet.Header, packet.Payload)
	}
	for !p.over() && !l.full() && p.next(packet) {
		if packet.Op == uint16(cuda.OpCallbackWait) {
			p.serve(packet.Header, packet.Payload)
			continue
		}
		l.deferred = append(l.deferred, deferredPacket{packet.Header, append([]byte(nil), packet.Payload...)})
		l.bytes += len(packet.Payload)
	}
	return true, time.Millisecond
}
