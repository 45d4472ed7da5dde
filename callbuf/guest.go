package callbuf

import (
	"bytes"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// waitSlice bounds every sleep of a guest, after which it checks whether its worker still lives.
const waitSlice = 100 * time.Millisecond

// Guest is the guest's side of a segment. All methods may be called from any goroutine.
type Guest struct {
	mem   []byte
	l     Layout
	apart bool          // FeatureApart
	ring  func()        // FeatureBell: wakes the poller; nil: a futex does
	never atomic.Uint32 // apart: constant word to sleep on

	mu   sync.Mutex
	free []uint16 // reply slots without a waiting caller
	cond *sync.Cond
	tag  atomic.Uint32
}

// Open reads the header of a segment that a host formatted. The host is trusted not to be hostile, but Open
// refuses a header that does not fit mem.
func Open(mem []byte) (*Guest, error) {
	if len(mem) < HeaderBytes || word64(mem, offMagic).Load() != Magic || le.Uint32(mem[offVersion:]) != Version {
		return nil, ErrLayout
	}
	l, err := Geometry{
		RingSlots:    le.Uint32(mem[offRingSlots:]),
		ReplySlots:   le.Uint32(mem[offReplySlots:]),
		EventWords:   le.Uint32(mem[offEventWords:]),
		ReleaseWords: le.Uint32(mem[offReleaseWords:]),
		ArenaBytes:   le.Uint64(mem[offArenaBytes:]),
	}.Layout()
	if err != nil {
		return nil, fmt.Errorf("%w: %v", ErrLayout, err)
	}
	if l.SegmentBytes > uint64(len(mem)) || l.SegmentBytes != le.Uint64(mem[offSegmentBytes:]) ||
		l.RingOffset != le.Uint32(mem[offRingOffset:]) || l.ArenaOffset != le.Uint64(mem[offArenaOffset:]) {
		return nil, fmt.Errorf("%w: sizes disagree", ErrLayout)
	}
	g := &Guest{mem: mem, l: l, apart: le.Uint64(mem[offFeatures:])&FeatureApart != 0}
	g.cond = sync.NewCond(&g.mu)
	for i := l.ReplySlots; i > 0; i-- {
		g.free = append(g.free, uint16(i-1))
	}
	return g, nil
}

// Layout returns the segment's layout.
func (g *Guest) Layout() Layout { return g.l }

// Send puts a packet into the ring. While the ring is full it blocks, calling alive every 100 ms at the
// latest; alive's error ends the wait.
func (g *Guest) Send(h Header, payload []byte, alive func() error) error {
	n := slotsFor(len(payload))
	if n > plainPacketSlots && n > min(word32(g.mem, offPacketSlots).Load(), g.l.packetSlots()) {
		return ErrTooLarge
	}
	first, err := g.claim(n, alive)
	if err != nil {
		return err
	}
	head := h.bytes(len(payload))
	s := g.slot(first)
	copy(s[8:], head[:])
	rest := payload[copy(s[8+packetHeader:], payload):]
	for i := uint32(1); i < n; i++ {
		rest = rest[copy(g.slot(first + i)[8:], rest):]
		g.seq(first + i).Store(uint64(first+i) + 1)
	}
	g.seq(first).Store(uint64(first) + 1)

	g.wakePoller()
	return nil
}

// SendBeside puts a packet beside the ring. The host must have taken the one before.
func (g *Guest) SendBeside(h Header, payload []byte) error {
	if len(payload) > reportBytes-packetHeader {
		return ErrTooLarge
	}
	word := word32(g.mem, offReport)
	word.CompareAndSwap(0, reportNone)
	if word32(g.mem, offReportTaken).Load() == 0 || word.Load() != reportNone {
		return ErrBesideTaken
	}
	head := h.bytes(len(payload))
	copy(g.mem[offReportBody+copy(g.mem[offReportBody:], head[:]):], payload)
	word.Store(reportMade)
	g.wakePoller()
	return nil
}

// bytes returns the encoded header of a packet with a payload of n bytes.
func (h *Header) bytes(n int) (head [packetHeader]byte) {
	le.PutUint16(head[0:], h.Op)
	le.PutUint16(head[2:], uint16(n))
	le.PutUint16(head[4:], h.Flags)
	le.PutUint16(head[6:], h.ReplySlot)
	le.PutUint32(head[8:], h.ReplyTag)
	le.PutUint32(head[12:], h.Context)
	le.PutUint64(head[16:], h.Stream)
	return head
}

func (g *Guest) wakePoller() {
	if parked := word32(g.mem, offPollerParked); parked.Load() != 0 && parked.Swap(0) != 0 {
		if g.ring != nil {
			g.ring()
		} else {
			FutexWake(parked, 1)
		}
	}
}

// RingBy sets the function that wakes the poller if the segment has FeatureBell: by a message to the worker.
// It must be called before the first Send.
func (g *Guest) RingBy(ring func()) {
	if le.Uint64(g.mem[offFeatures:])&FeatureBell != 0 {
		g.ring = ring
	}
}

func (g *Guest) slotAt(i uint32) uint64 {
	return uint64(g.l.RingOffset) + uint64(i&(g.l.RingSlots-1))*SlotBytes
}

func (g *Guest) slot(i uint32) []byte {
	at := g.slotAt(i)
	return g.mem[at : at+SlotBytes : at+SlotBytes]
}

func (g *Guest) seq(i uint32) *atomic.Uint64 { return word64(g.mem, g.slotAt(i)) }

// claim reserves n consecutive slots.
func (g *Guest) claim(n uint32, alive func() error) (uint32, error) {
	tail, head := word32(g.mem, offTail), word32(g.mem, offHead)
	for {
		t := tail.Load()
		if h := head.Load(); t+n-h <= g.l.RingSlots {
			if tail.CompareAndSwap(t, t+n) {
				return t, nil
			}
			continue
		} else if err := g.waitForSpace(head, h, alive); err != nil {
			return 0, err
		}
	}
}

func (g *Guest) waitForSpace(head *atomic.Uint32, seen uint32, alive func() error) error {
	word32(g.mem, offProducersWaiting).Store(1)
	if head.Load() == seen {
		g.sleep(head, seen)
	}
	return alive()
}

// sleep blocks for a short time, or until the host has changed a word.
func (g *Guest) sleep(word *atomic.Uint32, old uint32) {
	if g.apart {
		pollWait(&g.never, 0, time.Now(), waitSlice, func() bool { return word.Load() != old })
		return
	}
	FutexWait(word, old, waitSlice)
}

// Call sends a packet and waits for its reply. It appends the reply's data to out.
func (g *Guest) Call(h Header, payload, out []byte, alive func() error) (result int32, data []byte, err error) {
	slot := g.takeSlot()
	defer g.giveSlot(slot)
	h.Flags |= FlagReply
	h.ReplySlot = slot
	for h.ReplyTag = 0; h.ReplyTag == 0; {
		h.ReplyTag = g.tag.Add(1)
	}
	if err := g.Send(h, payload, alive); err != nil {
		return 0, out, err
	}
	return g.wait(slot, h.ReplyTag, out, alive)
}

func (g *Guest) wait(slot uint16, tag uint32, out []byte, alive func() error) (int32, []byte, error) {
	at := uint64(g.l.ReplyOffset) + uint64(slot)*ReplyBytes
	word, waiting := word32(g.mem, at), word32(g.mem, at+4)
	done := func() bool { return word.Load() == tag }
	if !Spin(time.Duration(word32(g.mem, offSpin).Load()), done) {
		defer waiting.Store(0)
		for {
			waiting.Store(1)
			old := word.Load()
			if old == tag {
				break
			}
			g.sleep(word, old)
			if done() {
				break
			}
			if err := alive(); err != nil {
				return 0, out, err
			}
		}
	}
	s := g.mem[at : at+ReplyBytes]
	n := min(le.Uint32(s[12:]), MaxReplyData)
	return int32(le.Uint32(s[8:])), append(out, s[replyHeader:replyHeader+n]...), nil
}

func (g *Guest) takeSlot() uint16 {
	g.mu.Lock()
	defer g.mu.Unlock()
	for len(g.free) == 0 {
		g.cond.Wait()
	}
	s := g.free[len(g.free)-1]
	g.free = g.free[:len(g.free)-1]
	return s
}

func (g *Guest) giveSlot(s uint16) {
	g.mu.Lock()
	g.free = append(g.free, s)
	g.mu.Unlock()
	g.cond.Signal()
}

// LastWords takes the text that the host has left for the program's stderr, or returns "".
func (g *Guest) LastWords() string {
	if !word32(g.mem, offWordsWait).CompareAndSwap(1, 0) {
		return ""
	}
	text, _, _ := bytes.Cut(g.mem[offWords:HeaderBytes], []byte{0})
	return string(text)
}

// Poison returns the process's sticky result, 0 for none.
func (g *Guest) Poison() int32 { return int32(word32(g.mem, offProcessPoison).Load()) }

// ContextPoison returns the sticky result of a context.
func (g *Guest) ContextPoison(id uint32) int32 {
	if id >= MaxContexts {
		return 0
	}
	return int32(word32(g.mem, offContextPoison+uint64(id)*4).Load())
}

// Held reports whether the host is holding a call that it can't let through yet.
func (g *Guest) Held() bool { return word32(g.mem, offHeld).Load() != 0 }

// TextWaits reports whether a context has text for the program.
func (g *Guest) TextWaits(id uint32) bool {
	return id < MaxContexts && word32(g.mem, offContextText+uint64(id)*4).Load() != 0
}

// EventSerial returns the serial of the last completed record of an event.
func (g *Guest) EventSerial(event uint64) uint64 {
	return word64(g.mem, uint64(g.l.EventOffset)+(event&uint64(g.l.EventWords-1))*eventBytes).Load()
}

// ReleaseWord returns the completion word of a staging block; n counts from 1 like the packet's release
// field. The guest sets it to 0 before use.
func (g *Guest) ReleaseWord(n uint32) *atomic.Uint32 {
	return word32(g.mem, uint64(g.l.ReleaseOffset)+uint64(n-1)*4)
}

// Arena returns the guest's view of the arena.
func (g *Guest) Arena() []byte {
	return g.mem[g.l.ArenaOffset : g.l.ArenaOffset+g.l.ArenaBytes]
}
