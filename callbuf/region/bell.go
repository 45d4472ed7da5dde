package region

// Bell is what each side says of itself, so that the other knows whether to ring: over a
// port beside the region (callbuf/bell), which carries nothing but that hint.
type Bell uint32

const (
	NoBell Bell = iota // it hears nothing, and looks for itself
	Awake              // it hears, but looks for itself; it says so before it sleeps
	Asleep             // it is to be rung when there is something to look at
)

// SetBell tells the hub how the agent waits. Who says Asleep looks once more before it sleeps.
func (g *Guest) SetBell(b Bell) { word32(g.mem, offAgentBell).Store(uint32(b)) }

// Bell is how the hub waits.
func (g *Guest) Bell() Bell { return Bell(word32(g.mem, offHubBell).Load()) }

// HubRouses says whether to ring is enough to have workers woken that sleep, without a message.
// It holds for the session.
func (g *Guest) HubRouses() bool { return word32(g.mem, offHubRouses).Load() != 0 }

// SetBell tells the agent how the hub waits; see Guest.
func (h *Host) SetBell(b Bell) { word32(h.mem, offHubBell).Store(uint32(b)) }

// Bell is how the agent waits, or anything else that the guest has written.
func (h *Host) Bell() Bell { return Bell(word32(h.mem, offAgentBell).Load()) }
