package region

// Bell is the doorbell state that each side publishes, so that the other can decide whether to ring. Rings go
// over a port beside the region (callbuf/bell) and carry no data.
type Bell uint32

const (
	NoBell Bell = iota // this side receives no rings, it polls
	Awake              // it receives rings, but polls; it changes to Asleep before it sleeps
	Asleep             // it must be rung when there is work for it
)

// SetBell publishes the agent's doorbell state. After Asleep the agent polls once more before it sleeps.
func (g *Guest) SetBell(b Bell) { word32(g.mem, offAgentBell).Store(uint32(b)) }

// Bell returns the hub's doorbell state.
func (g *Guest) Bell() Bell { return Bell(word32(g.mem, offHubBell).Load()) }

// HubRouses reports whether the hub, when the agent rings the doorbell, also wakes the sleeping workers that
// have packets; the agent then sends no message for that. The value is constant in a session.
func (g *Guest) HubRouses() bool { return word32(g.mem, offHubRouses).Load() != 0 }

// SetBell publishes the hub's doorbell state; see Guest.
func (h *Host) SetBell(b Bell) { word32(h.mem, offHubBell).Store(uint32(b)) }

// Bell returns the agent's doorbell state, or any other value that the guest has written.
func (h *Host) Bell() Bell { return Bell(word32(h.mem, offAgentBell).Load()) }
