package region

import (
	"bytes"
	"slices"
	"testing"

	"pegasus/callbuf"
)

// An agent and a hub find each other and communicate; the second session of the agent finds empty rings.
func TestSessions(t *testing.T) {
	mem := make([]byte, ControlBytes)
	g, h := NewGuest(mem), NewHost(mem)
	if g.Begin(11); g.Answered() || g.HubRouses() {
		t.Error("answered before there was an answer")
	}
	if h.Boot() != 11 || h.Session() != 0 {
		t.Errorf("session %d, wanted %d", h.Session(), h.Boot())
	}
	h.Serve(11, 5)
	if !g.Answered() || g.Generation() != 5 || g.Over() || !g.HubRouses() {
		t.Errorf("not answered: generation %d", g.Generation())
	}
	for i := range uint32(100) {
		if !g.Send(Message{Open, i, []byte("hello")}) || !h.Send(Message{Gone, i, nil}) {
			t.Fatal("full")
		}
		up, ok, err := h.Receive()
		if !ok || err != nil || up.Kind != Open || up.Process != i || string(up.Body) != "hello" {
			t.Fatalf("%d: %+v, %v, %v", i, up, ok, err)
		}
		down, ok, err := g.Receive()
		if !ok || err != nil || down.Kind != Gone || down.Process != i || len(down.Body) != 0 {
			t.Fatalf("%d: %+v, %v, %v", i, down, ok, err)
		}
	}
	for range Slots {
		if !g.Send(Message{Close, 1, nil}) {
			t.Fatal("full too early")
		}
	}
	if g.Send(Message{Close, 1, nil}) {
		t.Error("more than fits")
	}
	g.Begin(12)
	if h.Session() == h.Boot() {
		t.Error("a new session isn't seen")
	}
	if g.HubRouses() {
		t.Error("what the hub of the old session could holds for the new one")
	}
	h.Serve(12, 6)
	if !g.Answered() || g.Generation() != 6 {
		t.Error("the new session isn't answered")
	}
	if _, ok, err := h.Receive(); ok || err != nil {
		t.Errorf("something of the old session is left: %v", err)
	}
	if h.Drop(); !g.Over() {
		t.Error("a session that was dropped goes on")
	}
	h.Beat()
	if !g.Beat() || g.Beat() {
		t.Error("no sign of life, or one too many")
	}
}

// The answers of an earlier hub are void for a new one.
func TestNewHub(t *testing.T) {
	mem := make([]byte, ControlBytes)
	g, h := NewGuest(mem), NewHost(mem)
	g.Begin(3)
	h.Serve(3, 1)
	if !g.Answered() {
		t.Fatal("not answered")
	}
	next := NewHost(mem)
	if !g.Over() {
		t.Error("the session outlives its hub")
	}
	if next.Boot() != 0 {
		t.Error("a session whose rings were used is begun again")
	}
	if g.Begin(4); next.Boot() != 4 {
		t.Error("a new session isn't seen")
	}
}

func TestPointer(t *testing.T) {
	const size = 1 << 20
	p := Pointer{Offset: 64 << 10, Boot: 9}
	b := p.Append(nil)
	if len(b) != SectorBytes {
		t.Fatalf("%d bytes", len(b))
	}
	if got, err := ParsePointer(b, size); err != nil || got != p {
		t.Errorf("%+v, %v", got, err)
	}
	for _, bad := range []Pointer{
		{64<<10 + 1, 9}, {size, 9}, {size - ControlBytes, 9}, {1<<64 - PageBytes, 9}, {64 << 10, 0},
	} {
		if got, err := ParsePointer(bad.Append(nil), size); err == nil {
			t.Errorf("%+v: accepted as %+v", bad, got)
		}
	}
	b[9] ^= 1
	if _, err := ParsePointer(b, size); err == nil {
		t.Error("a broken one is accepted")
	}
	if !Marked(Mark()) || Marked(make([]byte, SectorBytes)) {
		t.Error("marks")
	}
}

// An agent that takes over continues with the rings where the previous one was killed: its sent messages are
// sent, a half-written one is not, and those not yet taken are received.
func TestResume(t *testing.T) {
	mem := make([]byte, ControlBytes)
	g, h := NewGuest(mem), NewHost(mem)
	g.Begin(11)
	h.Serve(11, 5)
	for i := range uint32(Slots - 1) {
		g.Send(Message{Open, i, nil})
		h.Send(Message{Need, i, nil})
	}
	for range 3 {
		g.Receive()
		h.Receive()
	}
	copy(g.up.slot(), "half a message")
	g, ok := ResumeGuest(mem, 11, 5)
	if !ok {
		t.Fatal("not resumed")
	}
	g.Send(Message{Close, 99, nil})
	for i := uint32(3); i < Slots-1; i++ {
		up, _, err := h.Receive()
		if err != nil || up.Kind != Open || up.Process != i {
			t.Fatalf("%d: %+v, %v", i, up, err)
		}
		down, _, err := g.Receive()
		if err != nil || down.Kind != Need || down.Process != i {
			t.Fatalf("%d: %+v, %v", i, down, err)
		}
	}
	if up, _, err := h.Receive(); err != nil || up.Kind != Close || up.Process != 99 {
		t.Fatalf("%+v, %v", up, err)
	}
	for _, other := range [][2]uint64{{12, 5}, {11, 6}} {
		if _, ok := ResumeGuest(mem, other[0], other[1]); ok {
			t.Errorf("session %d of generation %d is resumed", other[0], other[1])
		}
	}
	h.Drop()
	if _, ok := ResumeGuest(mem, 11, 5); ok {
		t.Error("a session that was dropped is resumed")
	}
}

// Memory restored to any earlier state is detected.
func TestIntact(t *testing.T) {
	mem := make([]byte, ControlBytes)
	g, h := NewGuest(mem), NewHost(mem)
	saved := [][]byte{bytes.Clone(mem)}
	keep := func() {
		if h.Beat(); !h.Intact() {
			t.Fatal("not as it was written")
		}
		saved = append(saved, bytes.Clone(mem))
	}
	g.Begin(11)
	keep()
	h.Serve(11, 5)
	keep()
	g.Send(Message{Open, 1, nil})
	h.Receive()
	h.Send(Message{Gone, 1, nil})
	keep()
	h.Drop()
	keep()
	h.Beat()
	last := bytes.Clone(mem)
	for i, old := range saved {
		copy(mem, old)
		if h.Intact() {
			t.Errorf("state %d isn't noticed", i)
		}
		copy(mem, last)
	}
	if !h.Intact() {
		t.Error("the last state isn't intact")
	}
}

func TestBodies(t *testing.T) {
	hello := callbuf.Hello{Version: 2, Features: 7}
	if h, pid, err := ParseOpen(OpenBody(hello, 42)); err != nil || h != hello || pid != 42 {
		t.Errorf("open: %+v, %d, %v", h, pid, err)
	}
	if n, err := ParseNeed(NeedBody(1 << 40)); err != nil || n != 1<<40 {
		t.Errorf("need: %d, %v", n, err)
	}
	parts := callbuf.Extents{{Offset: 4096, Bytes: 8192}, {Offset: 0, Bytes: 4096}}
	b, err := LendBody(parts)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := ParseLend(b); err != nil || !slices.Equal(got, parts) {
		t.Errorf("lend: %v, %v", got, err)
	}
	if b, err := LendBody(make(callbuf.Extents, MaxExtents)); err != nil || len(b) > MaxBody {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	if _, err := LendBody(make(callbuf.Extents, MaxExtents+1)); err == nil {
		t.Error("more extents than fit")
	}
}

// Whatever a guest writes into a control area, the host receives messages within bounds, or an error; a
// message once received doesn't change.
func FuzzHost(f *testing.F) {
	m := Message{Open, 7, OpenBody(callbuf.Hello{Version: callbuf.Version}, 1)}
	f.Add(uint32(1), m.append(nil))
	f.Add(uint32(Slots+1), []byte{})
	f.Add(uint32(3), bytes.Repeat([]byte{0xff}, 3*slotBytes))
	f.Fuzz(func(t *testing.T, tail uint32, slots []byte) {
		mem := make([]byte, ControlBytes)
		h := NewHost(mem)
		h.Serve(1, 1)
		copy(mem[ringsAt:ringsAt+Slots*slotBytes], slots)
		word32(mem, offUpTail).Store(tail)
		for range Slots + 1 {
			m, ok, err := h.Receive()
			if err != nil || !ok {
				return
			}
			if len(m.Body) > MaxBody || m.Kind == 0 || m.Kind >= kinds {
				t.Fatalf("%+v", m)
			}
			ParseOpen(m.Body)
			ParseNeed(m.Body)
			if parts, err := ParseLend(m.Body); err == nil && len(parts) > MaxExtents {
				t.Fatalf("%d extents", len(parts))
			}
		}
		t.Fatal("more messages than slots")
	})
}

// Messages of a host are decoded with the same checks.
func FuzzGuest(f *testing.F) {
	m := Message{Welcome, 7, bytes.Repeat([]byte{1}, callbuf.WelcomeBytes)}
	f.Add(uint32(1), m.append(nil))
	f.Fuzz(func(t *testing.T, tail uint32, slots []byte) {
		mem := make([]byte, ControlBytes)
		g := NewGuest(mem)
		g.Begin(1)
		copy(mem[ringsAt+Slots*slotBytes:], slots)
		word32(mem, offDownTail).Store(tail)
		for range Slots + 1 {
			m, ok, err := g.Receive()
			if err != nil || !ok {
				return
			}
			if len(m.Body) > MaxBody {
				t.Fatalf("%+v", m)
			}
		}
		t.Fatal("more messages than slots")
	})
}

func FuzzPointer(f *testing.F) {
	f.Add(Pointer{4096, 1}.Append(nil), uint64(1<<20))
	f.Fuzz(func(t *testing.T, b []byte, size uint64) {
		if p, err := ParsePointer(b, size); err == nil && (p.Offset+ControlBytes > size || p.Offset+ControlBytes < p.Offset) {
			t.Fatalf("%+v in %d bytes", p, size)
		}
	})
}
