package worker

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"pegasus/callbuf"
	"pegasus/cuda"
)

// held is a deferred packet: it was read from the ring ahead of its turn.
type held struct {
	callbuf.Header
	payload []byte
}

// maxBehind bounds the number of deferred packets, and maxBehindBytes their payloads. The bounds are large enough to
// find, behind a long queue, a callback's report and a write for which streams wait.
const (
	maxBehind      = 64 << 10
	maxBehindBytes = 64 << 20
)

// poll serves calls until the session ends.
func (s *session) poll() {
	runtime.LockOSThread()
	debug.SetPanicOnFault(true)
	defer func() {
		if v := recover(); v != nil {
			s.end(cuda.ErrorUnknown, fmt.Sprintf("bug: %v\n%s", v, debug.Stack()))
		}
	}()
	defer s.count()
	var p callbuf.Packet
	for !s.ending.now.Load() {
		if s.serveBehind() {
			continue
		}
		if s.next(&p) {
			s.serve(p.Header, p.Payload)
		} else {
			s.idle()
		}
	}
}

// next takes a packet from the ring, or one that was put beside it: only a callback's report may come ahead of its
// turn. It ends the session of a guest that violates the protocol.
func (s *session) next(p *callbuf.Packet) bool {
	ok, err := s.host.Next(p)
	return s.proper(p, ok, err)
}

// report takes a packet only from beside the ring.
func (s *session) report(p *callbuf.Packet) bool {
	ok, err := s.host.Report(p)
	return s.proper(p, ok, err)
}

func (s *session) proper(p *callbuf.Packet, ok bool, err error) bool {
	if ok && p.Beside && p.Op != uint16(cuda.OpCallbackWait) {
		ok, err = false, fmt.Errorf("call %d came beside the ring", p.Op)
	}
	if err != nil {
		s.end(cuda.ErrorLaunchFailed, err.Error())
	}
	return ok
}

// serveBehind serves the first deferred packet and reports whether there was one.
func (s *session) serveBehind() bool {
	if len(s.behind) == 0 {
		return false
	}
	first := s.behind[0]
	s.behind[0] = held{}
	s.behindBytes -= len(first.payload)
	if s.behind = s.behind[1:]; len(s.behind) == 0 {
		s.behind = nil
	}
	s.serve(first.Header, first.payload)
	return true
}

// serve executes one call.
func (s *session) serve(h callbuf.Header, payload []byte) {
	if s.uncounted++; s.uncounted == 64 {
		s.count()
	}
	c := cuda.Call{
		Op: cuda.Op(h.Op), Reply: h.Flags&callbuf.FlagReply != 0, ReplySlot: h.ReplySlot, ReplyTag: h.ReplyTag,
		Context: h.Context, Stream: h.Stream,
	}
	if !s.early.serving && c.Op != cuda.OpCallbackWait {
		s.early.next(c.Op, c.Stream, payload)
	}
	data, r, ok := cuda.Dispatch(s, c, payload, s.reply[:0])
	switch {
	case !ok:
		s.refuse(c)
	case r == cuda.Deferred:
	case c.Reply:
		s.answer(c, r, data)
	case r != cuda.Success:
		s.peek(c).fail(debtor(c), r)
	}
}

// count adds the calls served since the last count to the gate page.
func (s *session) count() {
	if s.uncounted != 0 {
		s.gate.Calls(s.uncounted)
		s.uncounted = 0
	}
}

// refuse replies to a packet that is not a valid call.
func (s *session) refuse(c cuda.Call) {
	r := cuda.ErrorInvalidValue
	if !c.Op.Known() {
		r = cuda.ErrorNotSupported
	}
	if c.Reply {
		s.answer(c, r, nil)
	} else {
		s.peek(c).fail(debtor(c), r)
	}
}

// idle waits for the next packet: it polls for a short while, if a seat is free, and then sleeps.
func (s *session) idle() {
	s.count()
	if s.slept {
		s.slept = false
		callbuf.Yield() // the thread that woke the poller is often on this processor, and waits for it
	}
	if s.pollFor(s.spinTime) {
		return
	}
	s.slept = true
	if !s.ending.now.Load() {
		s.host.Park(parkSlice)
	}
}

// pollFor polls the ring for a while and reports whether there is work.
func (s *session) pollFor(d time.Duration) bool {
	if s.spin == nil {
		return callbuf.Spin(s.alone(d), s.look)
	}
	busy := s.spin.Saturated()
	s.letGuestSpin(!busy)
	if busy || !s.spin.TrySpin() {
		return s.look()
	}
	defer s.spin.EndSpin()
	return callbuf.Spin(d, s.look)
}

// letGuestSpin publishes to the guest's threads whether they may poll for replies.
func (s *session) letGuestSpin(may bool) {
	if may == s.guestSpins {
		return
	}
	s.guestSpins = may
	if may {
		s.host.SetSpin(s.alone(s.spinTime))
	} else {
		s.host.SetSpin(0)
	}
}

// alone returns d, or 0 on a host with one CPU, where the awaited process could not run meanwhile.
func (s *session) alone(d time.Duration) time.Duration {
	if runtime.NumCPU() == 1 {
		return 0
	}
	return d
}

func (s *session) look() bool { return s.host.Ready() || s.ending.now.Load() }

// whileHeld is the poller's step while a call waits at the gate. See admit.
func (s *session) whileHeld() (unbounded bool, slice time.Duration) {
	s.count()
	s.host.Publish()
	s.hold(true)
	if !s.dependent() {
		return false, 100 * time.Millisecond
	}
	p := &s.ahead
	if s.farBehind() && s.report(p) {
		s.serve(p.Header, p.Payload)
	}
	for !s.ending.now.Load() && !s.farBehind() && s.next(p) {
		if p.Op == uint16(cuda.OpCallbackWait) {
			s.serve(p.Header, p.Payload)
			continue
		}
		s.behind = append(s.behind, held{p.Header, append([]byte(nil), p.Payload...)})
		s.behindBytes += len(p.Payload)
	}
	return true, time.Millisecond
}

// farBehind reports whether the limit on deferred packets is reached.
func (s *session) farBehind() bool {
	return len(s.behind) >= maxBehind || s.behindBytes >= maxBehindBytes
}

// dependent reports whether work in flight may depend on the guest: on the report of a callback, or on the write of a
// word, possibly by a call later in the ring.
func (s *session) dependent() bool { return s.callbacks.any() || s.waits.Load() != 0 }

// ending is the end of a session, which happens once.
type ending struct {
	once   sync.Once
	now    atomic.Bool
	why    string
	result cuda.Result // of every later call; set before now
}

// end makes every further call of the guest process return r and stops the poller. Any goroutine may call it.
func (s *session) end(r cuda.Result, why string) {
	s.ending.once.Do(func() {
		s.ending.why, s.ending.result = why, r
		if why != "" {
			s.log.Warn("session dropped", "why", why, "result", r.Name())
		}
		s.host.Poison(int32(r))
		s.ending.now.Store(true)
		s.gate.Stop()
		if d := s.can.Control; d != nil {
			d.Abort() // the poller itself may be executing work
		}
		s.host.Unpark()
	})
}

// close destroys the guest's objects after the poller has returned. It waits for a bounded time and reports whether all
// were destroyed.
func (s *session) close() bool {
	gone := make(chan struct{})
	go func() {
		for _, g := range s.contexts {
			if g != nil {
				s.forget(g, func() {})
			}
		}
		s.going.Wait()
		close(gone)
	}()
	select {
	case <-gone:
		return true
	case <-time.After(endGrace):
	}
	if !s.keep() {
		return false
	}
	select {
	case <-gone: // only storing the attached segments took long
		return true
	case <-time.After(keptGrace):
		return false
	}
}
