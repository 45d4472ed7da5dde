package callbuf

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func small() Geometry {
	return Geometry{RingSlots: 128, ReplySlots: 8, EventWords: 16, ReleaseWords: 16, ArenaBytes: 1 << 20}
}

func pair(t testing.TB, g Geometry) (*Host, *Guest, []byte) {
	t.Helper()
	return pairWith(t, g, 0)
}

func pairWith(t testing.TB, g Geometry, features uint64) (*Host, *Guest, []byte) {
	t.Helper()
	l, err := g.Layout()
	if err != nil {
		t.Fatal(err)
	}
	f, err := NewFile(l)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	mem, err := Map(f, l.SegmentBytes)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { Unmap(mem) })
	h, err := Format(mem, l, 7, features)
	if err != nil {
		t.Fatal(err)
	}
	guest, err := Open(mem)
	if err != nil {
		t.Fatal(err)
	}
	return h, guest, mem
}

func living() error { return nil }

// payloadOf returns the limit of the payload of a packet of some slots.
func payloadOf(slots int) int { return firstPayload + (slots-1)*slotBody }

func TestPacketsArriveWholeAndInOrder(t *testing.T) {
	for _, c := range []struct {
		ring uint32
		long bool
		most int // slots
	}{{128, false, 64}, {128, true, 64}, {256, true, 128}, {1024, false, 64}, {1024, true, MaxPacketSlots}} {
		t.Run(fmt.Sprintf("%d slots, long packets %v", c.ring, c.long), func(t *testing.T) {
			geometry := small()
			geometry.RingSlots = c.ring
			h, g, _ := pair(t, geometry)
			if c.long {
				h.TakeLong()
			}
			arriveWhole(t, h, g, payloadOf(c.most))
		})
	}
}

func arriveWhole(t *testing.T, h *Host, g *Guest, most int) {
	var p Packet
	for n := 0; n <= most; n = max(n+1, min(n+37, most)) {
		want := bytes.Repeat([]byte{byte(n), byte(n >> 8), 0xa5}, n/3+1)[:n]
		if err := g.Send(Header{Op: uint16(n), Context: 3, Stream: uint64(n) << 32}, want, living); err != nil {
			t.Fatal(err)
		}
		if ok, err := h.Next(&p); !ok || err != nil {
			t.Fatalf("payload of %d bytes: %v %v", n, ok, err)
		}
		if p.Op != uint16(n) || p.Context != 3 || p.Stream != uint64(n)<<32 || !bytes.Equal(p.Payload, want) {
			t.Fatalf("payload of %d bytes arrived as %d bytes, header %+v", n, len(p.Payload), p.Header)
		}
	}
	if ok, err := h.Next(&p); ok || err != nil {
		t.Fatalf("a packet out of nothing: %v %v", ok, err)
	}
	if err := g.Send(Header{}, make([]byte, most+1), living); !errors.Is(err, ErrTooLarge) {
		t.Fatalf("oversized payload: %v", err)
	}
}

// Many producers share a ring that is far too small for them: nothing is lost, and each producer's packets
// keep their order.
func TestProducersShareTheRing(t *testing.T) {
	h, g, _ := pair(t, small())
	const producers, each = 8, 5000
	var wg sync.WaitGroup
	for id := range producers {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(id)))
			for i := range each {
				if err := g.Send(Header{Context: uint32(id), Stream: uint64(i)}, make([]byte, r.IntN(400)), living); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	var next [producers]uint64
	var p Packet
	for got := 0; got < producers*each; {
		ok, err := h.Next(&p)
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			h.Park(time.Second)
			continue
		}
		if p.Stream != next[p.Context] {
			t.Fatalf("producer %d: packet %d, want %d", p.Context, p.Stream, next[p.Context])
		}
		next[p.Context]++
		got++
	}
	wg.Wait()
}

// A packet does not count as taken while it is being served.
func TestHeadFollowsWhatWasServed(t *testing.T) {
	h, g, mem := pair(t, small())
	head := word32(mem, offHead)
	var p Packet
	for range 5 {
		for range h.l.RingSlots {
			if err := g.Send(Header{}, nil, living); err != nil {
				t.Fatal(err)
			}
		}
		for range h.l.RingSlots {
			at := h.next
			if ok, err := h.Next(&p); !ok || err != nil {
				t.Fatal(ok, err)
			}
			if seen := head.Load(); seen > at || at-seen > h.l.RingSlots/4 {
				t.Fatalf("head is %d while packet %d is served", seen, at)
			}
		}
		h.Next(&p) // finds the ring empty
	}
}

// A producer that has read the head, and then marks itself as waiting for more, is not forgotten.
func TestProducersAreNotForgotten(t *testing.T) {
	h, _, mem := pair(t, small())
	head, waiting := word32(mem, offHead), word32(mem, offProducersWaiting)
	var round, ended atomic.Uint32
	const rounds = 8000
	// await spins, so that with two processors a change is seen at once, and yields now and then, so that with one it comes.
	await := func(word *atomic.Uint32, n uint32) {
		for i := 1; word.Load() != n; i++ {
			if i%1000 == 0 {
				runtime.Gosched() // Yield gives up the processor, and not the one of Go's that the other goroutine waits for
			}
		}
	}
	go func() {
		for n := uint32(1); n <= rounds; n++ {
			await(&round, n)
			h.next++
			h.Publish()
			ended.Store(n)
		}
	}()
	for n := uint32(1); n <= rounds; n++ {
		waiting.Store(1) // another one
		round.Store(n)
		await(head, n)
		for range n % 8 {
			head.Load()
		}
		waiting.Store(1)
		await(&ended, n)
		if waiting.Load() == 0 {
			t.Fatalf("round %d: a producer waits for the ring to be read further, and nobody knows", n)
		}
	}
}

func TestRepliesReachTheirCallers(t *testing.T) {
	for _, spin := range []time.Duration{0, 20 * time.Microsecond} {
		t.Run(spin.String(), func(t *testing.T) {
			h, g, _ := pair(t, small())
			h.SetSpin(spin)
			stop := make(chan struct{})
			var host sync.WaitGroup
			host.Go(func() {
				var p Packet
				for {
					switch ok, err := h.Next(&p); {
					case err != nil:
						t.Error(err)
						return
					case ok:
						if err := h.Reply(p.ReplySlot, p.ReplyTag, int32(p.Op), p.Payload); err != nil {
							t.Error(err)
						}
					default:
						select {
						case <-stop:
							return
						default:
							h.Park(10 * time.Millisecond)
						}
					}
				}
			})
			var wg sync.WaitGroup
			for id := range 20 { // more callers than reply slots
				wg.Go(func() {
					for i := range 200 {
						text := fmt.Sprintf("%d/%d", id, i)
						r, data, err := g.Call(Header{Op: uint16(id)}, []byte(text), nil, living)
						if err != nil || r != int32(id) || string(data) != text {
							t.Errorf("call %s: %d %q %v", text, r, data, err)
							return
						}
					}
				})
			}
			wg.Wait()
			close(stop)
			h.Unpark()
			host.Wait()
		})
	}
}

// After its host has died, a caller gets its error within a slice or two.
func TestCallersNoticeADeadHost(t *testing.T) {
	_, g, _ := pair(t, small())
	dead := errors.New("hung up")
	if _, _, err := g.Call(Header{}, nil, nil, func() error { return dead }); !errors.Is(err, dead) {
		t.Fatalf("call: %v", err)
	}
	var err error
	for err == nil { // the ring fills up without a reader
		err = g.Send(Header{}, make([]byte, 1000), func() error { return dead })
	}
	if !errors.Is(err, dead) {
		t.Fatalf("send: %v", err)
	}
}

func TestHostRefuses(t *testing.T) {
	cases := []struct {
		name   string
		spoil  func(mem []byte, l Layout)
		errHas string
	}{
		{"payload too long", func(mem []byte, l Layout) { le.PutUint16(mem[l.RingOffset+8+2:], MaxPayload+1) }, "payload"},
		{"payload too long for the ring", func(mem []byte, l Layout) {
			le.PutUint16(mem[l.RingOffset+8+2:], uint16(payloadOf(int(l.RingSlots/2))+1))
		}, "payload"},
		{"missing part", func(mem []byte, l Layout) { le.PutUint16(mem[l.RingOffset+8+2:], 500) }, "part"},
		{"reply slot", func(mem []byte, l Layout) {
			le.PutUint16(mem[l.RingOffset+8+4:], FlagReply)
			le.PutUint16(mem[l.RingOffset+8+6:], uint16(l.ReplySlots))
		}, "reply slot"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			h, g, mem := pair(t, small())
			if err := g.Send(Header{}, nil, living); err != nil {
				t.Fatal(err)
			}
			c.spoil(mem, h.l)
			var p Packet
			for range 2 { // the second call finds the ring dead
				ok, err := h.Next(&p)
				if ok || !errors.Is(err, ErrProtocol) || !strings.Contains(err.Error(), c.errHas) {
					t.Fatalf("got %v, %v", ok, err)
				}
			}
		})
	}
}

func TestHostBounds(t *testing.T) {
	h, _, mem := pair(t, small())
	for _, c := range []struct {
		off, n uint64
		ok     bool
	}{
		{0, 1 << 20, true}, {1 << 20, 0, true}, {1, 1 << 20, false}, {1<<20 + 1, 0, false},
		{^uint64(0), 2, false}, {2, ^uint64(0), false}, {1<<20 - 1, 1, true},
	} {
		if b, ok := h.Arena(c.off, c.n); ok != c.ok || ok && uint64(len(b)) != c.n {
			t.Errorf("arena %d+%d: %v, %d bytes", c.off, c.n, ok, len(b))
		}
	}
	before := bytes.Clone(mem)
	h.Release(0)
	h.Release(17)
	h.Release(^uint32(0))
	h.PoisonContext(MaxContexts, 1)
	if err := h.Reply(8, 1, 0, nil); err == nil {
		t.Error("a reply slot out of range was written")
	}
	if err := h.Reply(0, 1, 0, make([]byte, MaxReplyData+1)); err == nil {
		t.Error("a reply too long was written")
	}
	if !bytes.Equal(before, mem) {
		t.Error("something out of range was written")
	}
}

func TestWords(t *testing.T) {
	h, g, _ := pair(t, small())
	h.Poison(719)
	h.PoisonContext(5, 700)
	h.CompleteEvent(16+3, 42)
	h.Release(16)
	if g.Poison() != 719 || g.ContextPoison(5) != 700 || g.ContextPoison(4) != 0 || g.EventSerial(3) != 42 || g.ReleaseWord(16).Load() != 1 {
		t.Error("a word did not arrive")
	}
}

// A reply may be late to wake: a caller's sleep mark, perhaps already of the next sleep, is left unchanged.
func TestReplyLeavesSleeperAlone(t *testing.T) {
	h, _, mem := pair(t, small())
	waiting := word32(mem, uint64(h.Layout().ReplyOffset)+5*ReplyBytes+4)
	waiting.Store(1)
	if err := h.Reply(5, 1, 0, nil); err != nil || waiting.Load() != 1 {
		t.Errorf("waiting %d, error %v", waiting.Load(), err)
	}
}

// A thread that waits at an event's word is answered once, like by a reply; any other value that a guest
// writes there has no effect.
func TestEventWaiter(t *testing.T) {
	h, g, mem := pair(t, small())
	word := uint64(h.Layout().EventOffset) + 3*eventBytes
	waiter, tag := word64(mem, word+8), word32(mem, uint64(h.Layout().ReplyOffset)+5*ReplyBytes)
	waiter.Store(0x1234<<32 | (5 + 1))
	h.CompleteEvent(16+3, 42)
	if g.EventSerial(3) != 42 || tag.Load() != 0x1234 || waiter.Load() != 0 {
		t.Errorf("serial %d, tag %#x, waiter %#x", g.EventSerial(3), tag.Load(), waiter.Load())
	}
	tag.Store(7)
	h.CompleteEvent(3, 43)
	if tag.Load() != 7 {
		t.Error("answered twice")
	}
	for _, w := range []uint64{1 << 32, 8 + 1, 0xffff_ffff, ^uint64(0)} { // no slot 8
		waiter.Store(w)
		before := bytes.Clone(mem)
		h.CompleteEvent(3, 43)
		waiter.Store(w)
		if !bytes.Equal(before, mem) {
			t.Errorf("waiter %#x: something was written", w)
		}
	}
}

func TestLayoutRefuses(t *testing.T) {
	for _, spoil := range []func(*Geometry){
		func(g *Geometry) { g.RingSlots = 100 }, func(g *Geometry) { g.RingSlots = 64 }, func(g *Geometry) { g.RingSlots = 1 << 31 },
		func(g *Geometry) { g.ReplySlots = 0 }, func(g *Geometry) { g.ReplySlots = 65537 }, func(g *Geometry) { g.EventWords = 3 },
		func(g *Geometry) { g.ReleaseWords = 0 }, func(g *Geometry) { g.ArenaBytes = 5 }, func(g *Geometry) { g.ArenaBytes = 1 << 50 },
	} {
		g := small()
		spoil(&g)
		if l, err := g.Layout(); err == nil {
			t.Errorf("%+v was laid out as %+v", g, l)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	_, _, mem := pair(t, small())
	for _, off := range []int{offMagic, offVersion, offRingSlots, offRingOffset, offEventWords, offArenaBytes, offArenaOffset, offSegmentBytes} {
		bad := bytes.Clone(mem)
		bad[off] ^= 0x41
		if _, err := Open(bad); !errors.Is(err, ErrLayout) {
			t.Errorf("header with byte %#x changed: %v", off, err)
		}
	}
	if _, err := Open(mem[:100]); !errors.Is(err, ErrLayout) {
		t.Errorf("short segment: %v", err)
	}
}

// The golden files are the wire format: a person can read them, and the C library is tested against the same
// ones.
func TestGolden(t *testing.T) {
	golden := func(name string, got []byte) {
		t.Helper()
		path := filepath.Join("testdata", name+".golden")
		text := hex.Dump(got)
		if *update {
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if string(want) != text {
			t.Errorf("%s: got\n%swant\n%s", name, text, want)
		}
	}
	_, g, mem := pair(t, DefaultGeometry())
	golden("header", mem[:0x200])
	if err := g.Send(Header{Op: 0x1234, Flags: FlagReply, ReplySlot: 0x21, ReplyTag: 0x6b7a8999, Context: 0x01020304, Stream: 0x1122334455667788},
		[]byte("a payload that needs a second slot because it is longer than the ninety-six bytes that the first one carries"), living); err != nil {
		t.Fatal(err)
	}
	at := g.l.RingOffset
	golden("packet", mem[at:at+2*SlotBytes])
	golden("hello", Hello{Version: Version, Features: 5}.Append(nil))
	golden("welcome", Welcome{Version: Version, Result: 2, WorkerPID: 77, Features: 5, Generation: 9, SegmentBytes: 1 << 28, ArenaBases: ArenaBases,
		DeviceBases: DeviceBases(3), DeviceBytes: DeviceSliceBytes, Message: "domain web: memory quota used up"}.Append(nil))
	golden("placed", Welcome{Version: Version, WorkerPID: 77, Features: HelloPlaced, SegmentBytes: 1 << 28, SegmentOffset: 0x1122334455667000}.Append(nil))
	golden("map", MapRequest{Arena: 1, Device: NoWindow}.Append(nil))
	golden("mapped", MapReply{Result: 0, ArenaOK: true}.Append(nil))
}

func TestRendezvousRoundTrip(t *testing.T) {
	w := Welcome{Version: 1, Result: -3, WorkerPID: 77, Features: 5, Generation: 9, SegmentBytes: 1 << 28, ArenaBases: ArenaBases,
		DeviceBases: DeviceBases(511), DeviceBytes: 1, Message: strings.Repeat("x", 127)}
	if got, err := ParseWelcome(w.Append(nil)); err != nil || got != w {
		t.Errorf("welcome: %+v %v", got, err)
	}
	if _, err := ParseWelcome(append(w.Append(nil), make([]byte, 8)...)); err == nil {
		t.Error("a welcome with an offset that isn't announced")
	}
	w.Features, w.SegmentOffset = HelloPlaced, 1<<40
	if got, err := ParseWelcome(w.Append(nil)); err != nil || got != w {
		t.Errorf("a welcome with an offset: %+v %v", got, err)
	}
	if _, err := ParseWelcome(w.Append(nil)[:WelcomeBytes]); err == nil {
		t.Error("a welcome that lacks its offset")
	}
	h := Hello{Version: 3, Features: 1 << 40}
	if got, err := ParseHello(h.Append(nil)); err != nil || got != h {
		t.Errorf("hello: %+v %v", got, err)
	}
	m := MapRequest{Arena: 2, Device: NoWindow}
	if got, err := ParseMap(m.Append(nil)); err != nil || got != m {
		t.Errorf("map: %+v %v", got, err)
	}
	r := MapReply{Result: 999, ArenaOK: true, DevOK: true}
	if got, err := ParseMapped(r.Append(nil)); err != nil || got != r {
		t.Errorf("mapped: %+v %v", got, err)
	}
}

// FuzzHost drives a host over a segment that is rewritten between its steps.
// Each pair of input bytes is one step: send something proper, overwrite bytes
// anywhere, or let the host take a packet.
func FuzzHost(f *testing.F) {
	f.Add([]byte{0, 10, 2, 0, 2, 0})
	f.Add([]byte{0, 200, 1, 7, 2, 0, 1, 255, 0, 3, 2, 2})
	f.Fuzz(func(t *testing.T, steps []byte) {
		geometry := small()
		geometry.RingSlots = 1024
		h, g, mem := pair(t, geometry)
		h.TakeLong()
		head, tail := word32(mem, offHead), word32(mem, offTail)
		seed := rand.New(rand.NewPCG(9, uint64(len(steps))))
		var p Packet
		dead := false
		for ; len(steps) >= 2; steps = steps[2:] {
			arg := steps[1]
			switch steps[0] % 4 {
			case 0:
				if tail.Load()-h.next > h.l.RingSlots { // corrupted: send where the host reads
					tail.Store(h.next)
				}
				head.Store(h.next) // or Send would wait for a corrupted head
				n := min(int(arg)*130, MaxPayload)
				if tail.Load()-h.next+slotsFor(n) > h.l.RingSlots {
					continue // no room
				}
				err := g.Send(Header{Op: uint16(arg), Flags: uint16(arg & 1), ReplySlot: uint16(arg % 8), ReplyTag: 1}, make([]byte, n), nil)
				if err != nil && (n <= payloadOf(plainPacketSlots) || !errors.Is(err, ErrTooLarge)) { // the host's limit may be corrupted
					t.Fatal(err)
				}
			case 1: // anywhere in header, ring and reply slots
				at := seed.IntN(int(h.l.EventOffset))
				mem[at] = arg
			case 2: // the slot that the host reads next
				at := h.slot(h.next) + uint64(arg)%SlotBytes
				mem[at] = byte(seed.Uint32())
			case 3:
				ok, err := h.Next(&p)
				if err != nil && !errors.Is(err, ErrProtocol) || dead && (ok || err == nil) {
					t.Fatalf("next: %v %v (dead %v)", ok, err, dead)
				}
				dead = dead || err != nil
				if ok {
					if len(p.Payload) > MaxPayload {
						t.Fatalf("payload of %d bytes", len(p.Payload))
					}
					if p.Flags&FlagReply != 0 {
						if err := h.Reply(p.ReplySlot, p.ReplyTag, 0, nil); err != nil {
							t.Fatal(err)
						}
					}
				}
			}
		}
	})
}

func FuzzRendezvous(f *testing.F) {
	f.Add(Hello{Version: 1}.Append(nil))
	f.Add(Welcome{Version: 1}.Append(nil))
	f.Add(Welcome{Version: 1, Features: HelloPlaced, SegmentOffset: 4096}.Append(nil))
	f.Add(MapRequest{}.Append(nil))
	f.Add(MapReply{}.Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		if h, err := ParseHello(b); err == nil && len(h.Append(nil)) != HelloBytes {
			t.Fatal("hello")
		}
		if w, err := ParseWelcome(b); err == nil && len(w.Append(nil)) != len(b) {
			t.Fatal("welcome")
		}
		if m, err := ParseMap(b); err == nil && !bytes.Equal(m.Append(nil)[:12], b[:12]) {
			t.Fatal("map")
		}
		if m, err := ParseMapped(b); err == nil && len(m.Append(nil)) != MappedBytes {
			t.Fatal("mapped")
		}
	})
}

// BenchmarkCall measures the round trip of an empty call between two goroutines.
func BenchmarkCall(b *testing.B) {
	h, g, _ := pair(b, DefaultGeometry())
	h.SetSpin(time.Second)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		var p Packet
		for {
			if ok, _ := h.Next(&p); ok {
				h.Reply(p.ReplySlot, p.ReplyTag, 0, nil)
				continue
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	var out [MaxReplyData]byte
	for b.Loop() {
		if _, _, err := g.Call(Header{Op: 1}, nil, out[:0], living); err != nil {
			b.Fatal(err)
		}
	}
	close(stop)
	wg.Wait()
}

// A packet beside the ring is found before those in it, also when the ring is full, and only if the host
// reads there.
func TestBesideTheRing(t *testing.T) {
	h, g, mem := pair(t, small())
	var p Packet
	if err := g.SendBeside(Header{Op: 9}, nil); !errors.Is(err, ErrBesideTaken) {
		t.Fatalf("where nobody looks: %v", err)
	}
	h.TakeReports()
	for i := range small().RingSlots {
		if err := g.Send(Header{Op: uint16(i)}, nil, living); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := g.SendBeside(Header{Op: 9, Stream: 4}, []byte("done")); err != nil || !h.Ready() {
			t.Fatalf("%v, ready: %v", err, h.Ready())
		}
		if err := g.SendBeside(Header{Op: 9}, nil); !errors.Is(err, ErrBesideTaken) {
			t.Fatalf("before it was taken: %v", err)
		}
		if ok, err := h.Report(&p); !ok || err != nil || !p.Beside || p.Op != 9 || p.Stream != 4 || string(p.Payload) != "done" {
			t.Fatalf("%v %v %+v %q", ok, err, p.Header, p.Payload)
		}
		if ok, err := h.Report(&p); ok || err != nil {
			t.Fatalf("twice: %v %v", ok, err)
		}
	}
	if ok, err := h.Next(&p); !ok || err != nil || p.Beside || p.Op != 0 {
		t.Fatalf("%v %v %+v", ok, err, p.Header)
	}
	if err := g.SendBeside(Header{}, make([]byte, reportBytes-packetHeader+1)); !errors.Is(err, ErrTooLarge) {
		t.Fatal(err)
	}
	for _, c := range []struct {
		header Header
		n      uint16
	}{{Header{}, reportBytes - packetHeader + 1}, {Header{}, 65535}, {Header{Flags: FlagReply, ReplySlot: 8}, 0}} {
		h.err = nil
		if err := g.SendBeside(c.header, nil); err != nil {
			t.Fatal(err)
		}
		le.PutUint16(mem[offReportBody+2:], c.n)
		if ok, err := h.Next(&p); ok || !errors.Is(err, ErrProtocol) {
			t.Errorf("%+v: %v %v", c, ok, err)
		}
	}
}

// The host's last words reach the guest once, truncated to the room for them, and the first ones stay until
// they were taken.
func TestLastWords(t *testing.T) {
	h, g, _ := pair(t, small())
	if got := g.LastWords(); got != "" {
		t.Errorf("a fresh segment has the words %q", got)
	}
	h.LastWords("here")
	h.LastWords("there")
	if got := g.LastWords(); got != "here" {
		t.Errorf("%q, not the first words", got)
	}
	if got := g.LastWords(); got != "" {
		t.Errorf("%q twice", got)
	}
	h.LastWords(strings.Repeat("ä", 200))
	if got := g.LastWords(); !utf8.ValidString(got) || len(got) < 240 || !strings.HasSuffix(got, "ä…") {
		t.Errorf("long words become %q", got)
	}
}
