package callbuf

import (
	"fmt"
	"strings"
	"sync/atomic"
	"time"
)

// Host is the host's side of a segment. Next, Park and Publish belong to one goroutine, the poller; the other
// methods may be called from any goroutine.
type Host struct {
	mem           []byte
	arena         []byte
	l             Layout
	next          uint32 // free-running index of the next slot to read
	publishedHead uint32 // head as last published to the guest
	err           error  // the first protocol error; after it the ring is dead

	apart     bool          // FeatureApart
	bell      bool          // FeatureBell
	rouse     bool          // FeatureRouse
	roused    atomic.Uint32 // apart: set by Unpark, cleared when Park returns
	rung      atomic.Uint32 // bell without rouse: number of calls of Rung
	idleAt    uint32        // apart: next at the start of the idle time
	idleSince time.Time     // apart: start of the idle time
}

// Format writes the header of a fresh segment, which must be all zero, and returns the host's side of it. mem
// is page-aligned and l.SegmentBytes long.
func Format(mem []byte, l Layout, generation, features uint64) (*Host, error) {
	if uint64(len(mem)) < l.SegmentBytes {
		return nil, fmt.Errorf("segment of %d bytes: layout needs %d", len(mem), l.SegmentBytes)
	}
	FormatHeader(mem, l, generation, features)
	return NewHost(mem, l, features), nil
}

// FormatHeader writes only the header; mem is the segment's first page.
func FormatHeader(mem []byte, l Layout, generation, features uint64) {
	le.PutUint32(mem[offVersion:], Version)
	le.PutUint32(mem[offHeaderBytes:], HeaderBytes)
	le.PutUint64(mem[offFeatures:], features)
	le.PutUint64(mem[offGeneration:], generation)
	le.PutUint64(mem[offSegmentBytes:], l.SegmentBytes)
	for _, f := range [...]struct{ off, v uint32 }{
		{offRingOffset, l.RingOffset}, {offRingSlots, l.RingSlots},
		{offReplyOffset, l.ReplyOffset}, {offReplySlots, l.ReplySlots},
		{offEventOffset, l.EventOffset}, {offEventWords, l.EventWords},
		{offReleaseOffset, l.ReleaseOffset}, {offReleaseWords, l.ReleaseWords},
	} {
		le.PutUint32(mem[f.off:], f.v)
	}
	le.PutUint64(mem[offArenaOffset:], l.ArenaOffset)
	le.PutUint64(mem[offArenaBytes:], l.ArenaBytes)
	word64(mem, offMagic).Store(Magic)
}

// NewHost returns the host's side of a segment that Format prepared; l and features are the host's own
// copies, never read back from the segment. mem is the whole segment, or the part before its arena; see
// UseArena.
func NewHost(mem []byte, l Layout, features uint64) *Host {
	h := &Host{mem: mem, l: l, apart: features&FeatureApart != 0, bell: features&FeatureBell != 0, rouse: features&FeatureRouse != 0}
	if uint64(len(mem)) >= l.SegmentBytes {
		h.arena = mem[l.ArenaOffset:l.SegmentBytes]
	}
	return h
}

// UseArena sets the arena's memory, of l.ArenaBytes, if it does not follow the rest of the segment. Until
// then there is none.
func (h *Host) UseArena(mem []byte) { h.arena = mem }

// Layout returns the host's private copy of the layout.
func (h *Host) Layout() Layout { return h.l }

func (h *Host) slot(i uint32) uint64 {
	return uint64(h.l.RingOffset) + uint64(i&(h.l.RingSlots-1))*SlotBytes
}

func (h *Host) published(i uint32) bool {
	return word64(h.mem, h.slot(i)).Load() == uint64(i)+1
}

// Ready reports whether a packet waits.
func (h *Host) Ready() bool { return h.published(h.next) || h.reported() }

func (h *Host) reported() bool { return word32(h.mem, offReport).Load() == reportMade }

// TakeReports permits the guest to put packets beside the ring. Next returns them before the packets in the
// ring, and Report returns them also while the packets in the ring cannot be taken.
func (h *Host) TakeReports() { word32(h.mem, offReportTaken).Store(1) }

// TakeLong permits packets of more than 64 slots.
func (h *Host) TakeLong() { word32(h.mem, offPacketSlots).Store(h.l.packetSlots()) }

// Reports reports whether the guest puts urgent packets beside the ring.
func (h *Host) Reports() bool { return word32(h.mem, offReport).Load() != 0 }

// Report is Next for a packet beside the ring.
func (h *Host) Report(p *Packet) (bool, error) {
	if h.err != nil || !h.reported() {
		return false, h.err
	}
	copy(p.body[:reportBytes], h.mem[offReportBody:offReportBody+reportBytes])
	word32(h.mem, offReport).Store(reportNone)
	n := int(le.Uint16(p.body[2:]))
	if n > reportBytes-packetHeader {
		return false, h.fail("payload of %d bytes beside the ring", n)
	}
	if err := h.unpack(p, n); err != nil {
		return false, err
	}
	p.Beside = true
	return true, nil
}

// Next copies the next packet into p. It returns false if there is none, or if the guest broke the protocol:
// then the error gives the reason, and every later call returns the same error.
func (h *Host) Next(p *Packet) (bool, error) {
	if ok, err := h.Report(p); ok || err != nil {
		return ok, err
	}
	ready := h.published(h.next)
	if !ready || h.next-h.publishedHead >= h.l.RingSlots/4 {
		h.Publish() // head for the packets served: a guest that finds its packet taken may look for its effects
	}
	if !ready {
		return false, nil
	}
	at := h.slot(h.next)
	first := h.mem[at : at+SlotBytes : at+SlotBytes]
	copy(p.body[:lineBody], first[8:])
	n := int(le.Uint16(p.body[2:]))
	slots := slotsFor(n)
	if slots > h.l.packetSlots() {
		return false, h.fail("payload of %d bytes in slot %d", n, h.next)
	}
	if n > lineBody-packetHeader { // otherwise the second line stays in the producer's cache
		copy(p.body[lineBody:slotBody], first[8+lineBody:])
	}
	for i := uint32(1); i < slots; i++ {
		at := h.slot(h.next + i)
		if !h.published(h.next + i) {
			return false, h.fail("packet at slot %d published before its part %d", h.next, i)
		}
		copy(p.body[i*slotBody:(i+1)*slotBody], h.mem[at+8:at+SlotBytes])
	}
	if err := h.unpack(p, n); err != nil {
		return false, err
	}
	h.next += slots
	return true, nil
}

// unpack reads and checks a packet's header from its body. The packet has a payload of n bytes.
func (h *Host) unpack(p *Packet, n int) error {
	p.Header = Header{
		Op:        le.Uint16(p.body[0:]),
		Flags:     le.Uint16(p.body[4:]),
		ReplySlot: le.Uint16(p.body[6:]),
		ReplyTag:  le.Uint32(p.body[8:]),
		Context:   le.Uint32(p.body[12:]),
		Stream:    le.Uint64(p.body[16:]),
	}
	if p.Flags&FlagReply != 0 && uint32(p.ReplySlot) >= h.l.ReplySlots {
		return h.fail("reply slot %d of %d", p.ReplySlot, h.l.ReplySlots)
	}
	p.Payload, p.Beside = p.body[packetHeader:packetHeader+n], false
	return nil
}

func (h *Host) fail(format string, args ...any) error {
	h.err = fmt.Errorf("%w: %s", ErrProtocol, fmt.Sprintf(format, args...))
	return h.err
}

// Publish stores the ring's head for the guest. Next does it, for the packets before, when the ring is empty
// and every quarter of it; a poller that is about to wait for something else calls it first.
func (h *Host) Publish() {
	if h.publishedHead == h.next {
		return
	}
	h.publishedHead = h.next
	head, waiting := word32(h.mem, offHead), word32(h.mem, offProducersWaiting)
	wake := waiting.Load() != 0
	if wake {
		waiting.Store(0) // before head moves: a producer that sets it later may wait for the next move
	}
	head.Store(h.next)
	if wake || waiting.Load() != 0 {
		h.wake(head, 1<<30)
	}
}

// wake wakes up to n of the guest's threads that sleep on a word. Threads under another kernel poll.
func (h *Host) wake(w *atomic.Uint32, n int) {
	if !h.apart {
		FutexWake(w, n)
	}
}

// Park announces that the poller sleeps, checks for packets once more, and blocks until a producer or Unpark
// wakes it, or timeout has passed.
func (h *Host) Park(timeout time.Duration) {
	if h.apart {
		if h.next != h.idleAt || h.idleSince.IsZero() {
			h.idleAt, h.idleSince = h.next, time.Now()
		}
		if h.bell {
			h.sleepUntilRung(timeout)
		} else {
			pollWait(&h.roused, 0, h.idleSince, timeout, h.Ready)
		}
		h.roused.Store(0)
		return
	}
	parked := word32(h.mem, offPollerParked)
	parked.Store(1)
	if !h.Ready() {
		FutexWait(parked, 1, timeout)
	}
	parked.Store(0)
}

// Unpark wakes the poller if it sleeps.
func (h *Host) Unpark() {
	if h.apart {
		h.roused.Store(1)
		FutexWake(&h.roused, 1)
		word32(h.mem, offPollerParked).Store(0)
		h.Rung()
		return
	}
	parked := word32(h.mem, offPollerParked)
	if parked.Swap(0) != 0 {
		FutexWake(parked, 1)
	}
}

// Reply answers the caller that waits in slot for tag. It refuses a slot out of range and data above
// MaxReplyData. The caller itself clears its sleep mark: it may see the answer, go on and announce the next
// sleep before it is woken.
func (h *Host) Reply(slot uint16, tag uint32, result int32, data []byte) error {
	if uint32(slot) >= h.l.ReplySlots || len(data) > MaxReplyData {
		return fmt.Errorf("reply of %d bytes to slot %d: out of range", len(data), slot)
	}
	at := uint64(h.l.ReplyOffset) + uint64(slot)*ReplyBytes
	s := h.mem[at : at+ReplyBytes]
	le.PutUint32(s[8:], uint32(result))
	le.PutUint32(s[12:], uint32(len(data)))
	copy(s[replyHeader:], data)
	word32(h.mem, at).Store(tag)
	if word32(h.mem, at+4).Load() != 0 {
		h.wake(word32(h.mem, at), 1)
	}
	return nil
}

// CompleteEvent stores the serial of a completed record in the event's word, and wakes the thread that waits
// there, as a reply would. That wait is not in the ring, where it would queue behind calls that the gate
// holds back.
func (h *Host) CompleteEvent(event, serial uint64) {
	at := uint64(h.l.EventOffset) + (event&uint64(h.l.EventWords-1))*eventBytes
	word64(h.mem, at).Store(serial)
	waiter := word64(h.mem, at+8) // tag << 32 | slot + 1
	if waiter.Load() == 0 {
		return
	}
	w := waiter.Swap(0)
	if slot := uint32(w) - 1; slot < h.l.ReplySlots {
		_ = h.Reply(uint16(slot), uint32(w>>32), 0, nil)
	}
}

// Release reports to the guest that a staging block was read; n is the packet's release field: the word's
// index plus one, 0 for none. It ignores an n out of range.
func (h *Host) Release(n uint32) {
	if n-1 < h.l.ReleaseWords {
		word32(h.mem, uint64(h.l.ReleaseOffset)+uint64(n-1)*4).Store(1)
	}
}

// Poison makes every call of the process return result from now on.
func (h *Host) Poison(result int32) { word32(h.mem, offProcessPoison).Store(uint32(result)) }

// resultUnknown is CUDA_ERROR_UNKNOWN.
const resultUnknown = 999

// Abandon makes every call of a process return an error after the process's worker has ended, unless the
// worker set a result itself. It takes the segment's first page.
func Abandon(header []byte) {
	word32(header, offProcessPoison).CompareAndSwap(0, resultUnknown)
}

// LastWords leaves a text for the program's stderr, which the guest prints when a call fails next. A text
// that waits already stays: it is nearer to the cause.
func (h *Host) LastWords(text string) {
	wait := word32(h.mem, offWordsWait)
	if wait.Load() != 0 {
		return
	}
	room := h.mem[offWords:HeaderBytes]
	clear(room)
	if len(text) > len(room)-1 {
		text = strings.ToValidUTF8(text[:len(room)-4], "") + "…"
	}
	copy(room, text)
	wait.Store(1)
}

// PoisonContext makes every call of a context return result; 0 clears it.
func (h *Host) PoisonContext(id uint32, result int32) {
	if id < MaxContexts {
		word32(h.mem, offContextPoison+uint64(id)*4).Store(uint32(result))
	}
}

// Owe sets whether a context has a pending error of a queued call: then a synchronising call must fetch it.
func (h *Host) Owe(id uint32, owes bool) { h.setContextWord(offContextOwes, id, owes) }

// TextWaits sets whether a context has text for the program: then a synchronising call must fetch it.
func (h *Host) TextWaits(id uint32, waits bool) { h.setContextWord(offContextText, id, waits) }

// setContextWord sets a context's word among those at off.
func (h *Host) setContextWord(off uint64, id uint32, yes bool) {
	if id >= MaxContexts {
		return
	}
	v := uint32(0)
	if yes {
		v = 1
	}
	word32(h.mem, off+uint64(id)*4).Store(v)
}

// SetHeld sets whether the poller is holding a call that it can't let through yet: then a query should not
// wait for it.
func (h *Host) SetHeld(held bool) {
	v := uint32(0)
	if held {
		v = 1
	}
	word32(h.mem, offHeld).Store(v)
	if held && word32(h.mem, offProducersWaiting).Load() != 0 { // the ring stands still until head moves
		h.wake(word32(h.mem, offHead), 1<<30)
	}
}

// SetSpin sets how long the guest's threads may spin for a reply.
func (h *Host) SetSpin(d time.Duration) { word32(h.mem, offSpin).Store(uint32(min(d, time.Second))) }

// Arena returns n bytes of the arena from off on, or false if they are not in it. The guest may write them at
// any time.
func (h *Host) Arena(off, n uint64) ([]byte, bool) {
	if all := uint64(len(h.arena)); off > all || n > all-off {
		return nil, false
	}
	return h.arena[off : off+n : off+n], true
}
