package region

import "fmt"

const (
	// Slots is the capacity of a ring in messages.
	Slots = 16
	// ControlBytes is the size of a control area.
	ControlBytes = ringsAt + 2*Slots*slotBytes

	ringsAt = PageBytes
)

// Offsets of the control area's words, (g) written by the guest, (h) by the host.
const (
	offBoot       = 0x040 // (g) number of the agent's session
	offAnswered   = 0x080 // (h) the session that the hub serves
	offGeneration = 0x0c0 // (h) of that session
	offBeat       = 0x100 // (h) changes while the hub lives
	offUpTail     = 0x140 // (g) messages sent to the host
	offUpHead     = 0x180 // (h) number of them taken
	offDownTail   = 0x1c0 // (h) messages sent to the guest
	offDownHead   = 0x200 // (g) number of them taken
	offAgentBell  = 0x240 // (g) the agent's doorbell state: a Bell
	offHubBell    = 0x280 // (h) the hub's
	offHubRouses  = 0x2c0 // (h) not 0: the hub, when rung, also checks which workers must be woken
)

// ring is one direction of a control area as one side sees it. at counts the messages that this side has sent
// or taken.
type ring struct {
	mem        []byte
	slots      int // offset of its first slot
	tail, head int // offsets of its words
	at         uint32
}

func (r *ring) slot() []byte {
	from := r.slots + int(r.at%Slots)*slotBytes
	return r.mem[from : from+slotBytes : from+slotBytes]
}

// send puts a message into the ring; it returns false if the ring is full.
func (r *ring) send(m *Message) bool {
	if r.at-word32(r.mem, r.head).Load() >= Slots {
		return false // or the other side's head is wrong: then it gets no more
	}
	var b [slotBytes]byte
	m.append(b[:0])
	copy(r.slot(), b[:])
	r.at++
	word32(r.mem, r.tail).Store(r.at)
	return true
}

// take copies the next message, if there is one.
func (r *ring) take() (m Message, ok bool, err error) {
	waiting := word32(r.mem, r.tail).Load() - r.at
	switch {
	case waiting == 0:
		return m, false, nil
	case waiting > Slots:
		return m, false, fmt.Errorf("region: %d messages in a ring for %d", waiting, Slots)
	}
	m, err = parse(append([]byte(nil), r.slot()...))
	r.at++
	word32(r.mem, r.head).Store(r.at)
	return m, err == nil, err
}

// rings are both directions of a control area.
func rings(mem []byte) (up, down ring) {
	return ring{mem: mem, slots: ringsAt, tail: offUpTail, head: offUpHead},
		ring{mem: mem, slots: ringsAt + Slots*slotBytes, tail: offDownTail, head: offDownHead}
}

// Guest is the agent's side of a control area. It belongs to one goroutine.
type Guest struct {
	mem  []byte
	boot uint64
	up   ring
	down ring

	generation uint64
	beat       uint64
	lives      bool // the hub has set ControlAlive
}

// NewGuest returns the agent's side of an area of ControlBytes.
func NewGuest(mem []byte) *Guest { return &Guest{mem: mem[:ControlBytes:ControlBytes]} }

// ResumeGuest returns the agent's side of an area in which an earlier agent had a session: its progress is in
// the words that it wrote. ok reports whether the hub still serves the session.
func ResumeGuest(mem []byte, boot, generation uint64) (g *Guest, ok bool) {
	g = NewGuest(mem)
	g.boot = boot
	g.up, g.down = rings(g.mem)
	g.up.at = word32(g.mem, offUpTail).Load()
	g.down.at = word32(g.mem, offDownHead).Load()
	ok = word64(g.mem, offBoot).Load() == boot && g.Answered() && g.generation == generation
	return g, ok
}

// Begin begins a session. The boot number must never have been used before.
func (g *Guest) Begin(boot uint64) {
	g.boot, g.lives = boot, false
	g.up, g.down = rings(g.mem)
	word64(g.mem, offBoot).Store(0)
	word32(g.mem, offUpTail).Store(0)
	word32(g.mem, offDownHead).Store(0)
	word32(g.mem, offHubRouses).Store(0) // an earlier hub may have set it
	word64(g.mem, offBoot).Store(boot)
}

// Answered reports whether the hub serves the session.
func (g *Guest) Answered() bool {
	if word64(g.mem, offAnswered).Load() != g.boot {
		return false
	}
	g.generation = word64(g.mem, offGeneration).Load()
	return true
}

// Over reports whether the session is over: there is another hub, or other memory, or under Xen the hub has
// ended.
func (g *Guest) Over() bool {
	lived := g.lives
	g.lives = word32(g.mem, ControlAlive).Load()&0xff != 0
	return lived && !g.lives || word64(g.mem, offAnswered).Load() != g.boot || word64(g.mem, offGeneration).Load() != g.generation
}

// Generation returns the current session's generation.
func (g *Guest) Generation() uint64 { return g.generation }

// Beat reports whether the hub's heartbeat has changed since the last call.
func (g *Guest) Beat() bool {
	now := word64(g.mem, offBeat).Load()
	was := g.beat
	g.beat = now
	return now != was
}

// Send sends a message to the hub; it returns false if the ring is full.
func (g *Guest) Send(m Message) bool { return g.up.send(&m) }

// Receive takes the next message of the hub, if there is one.
func (g *Guest) Receive() (Message, bool, error) { return g.down.take() }

// Host is the hub's side of a control area. It belongs to one goroutine.
type Host struct {
	mem   []byte
	boot  uint64 // of the session that is served; 0: none
	stale uint64 // a session that an earlier hub served: it is not begun again
	up    ring
	down  ring

	generation, beat uint64 // as the hub wrote them
	agent            bool   // the agent has set ControlAgent
}

// NewHost returns the hub's side of an area of ControlBytes. No session is served yet.
func NewHost(mem []byte) *Host {
	h := &Host{mem: mem[:ControlBytes:ControlBytes]}
	h.beat = word64(h.mem, offBeat).Load()
	h.stale = word64(h.mem, offAnswered).Swap(0)
	return h
}

// Boot returns the session that the agent has begun, 0 for none.
func (h *Host) Boot() uint64 {
	boot := word64(h.mem, offBoot).Load()
	if boot == h.stale {
		return 0
	}
	return boot
}

// Session returns the session that is served, 0 for none.
func (h *Host) Session() uint64 { return h.boot }

// Serve begins to serve a session, with a generation that was never used before.
func (h *Host) Serve(boot, generation uint64) {
	h.boot, h.generation = boot, generation
	h.up, h.down = rings(h.mem)
	word32(h.mem, offUpHead).Store(0)
	word32(h.mem, offDownTail).Store(0)
	word64(h.mem, offGeneration).Store(generation)
	word32(h.mem, offHubRouses).Store(1)
	word64(h.mem, offAnswered).Store(boot)
}

// Drop ends the served session.
func (h *Host) Drop() {
	h.boot = 0
	word64(h.mem, offAnswered).Store(0)
}

// Deserted reports whether, under Xen, the agent that owns this area has died, and none will take it over.
func (h *Host) Deserted() bool {
	was := h.agent
	h.agent = word32(h.mem, ControlAgent).Load()&0xff != 0
	return was && !h.agent
}

// Beat changes the heartbeat.
func (h *Host) Beat() {
	h.beat++
	word64(h.mem, offBeat).Store(h.beat)
}

// Intact reports whether the hub's words are as it wrote them. If not, the machine's memory was restored to
// an earlier state, or the machine writes them itself: no session can continue then.
func (h *Host) Intact() bool {
	return word64(h.mem, offAnswered).Load() == h.boot && word64(h.mem, offBeat).Load() == h.beat &&
		(h.boot == 0 || word64(h.mem, offGeneration).Load() == h.generation &&
			word32(h.mem, offUpHead).Load() == h.up.at && word32(h.mem, offDownTail).Load() == h.down.at)
}

// Send sends a message to the agent; it returns false if the ring is full.
func (h *Host) Send(m Message) bool { return h.down.send(&m) }

// Receive takes the next message of the agent, if there is one. After an error the session must be dropped.
func (h *Host) Receive() (Message, bool, error) { return h.up.take() }
