package region

import "io"

// Each side writes into the control area which build it is, for people. Nothing is decided by it.
const (
	offHostRelease  = 0xe00 // (h) before it answers
	offAgentRelease = 0xf00 // (g) before it begins a session
	releaseBytes    = 64
)

// SetRelease says which build the agent is.
func (g *Guest) SetRelease(name string) { putRelease(g.mem[offAgentRelease:], name) }

// HostRelease is which build the hub is that answered.
func (g *Guest) HostRelease() string { return takeRelease(g.mem[offHostRelease:]) }

// SetRelease says which build the hub is.
func (h *Host) SetRelease(name string) { putRelease(h.mem[offHostRelease:], name) }

// AgentRelease is which build the agent says that it is.
func (h *Host) AgentRelease() string { return takeRelease(h.mem[offAgentRelease:]) }

// ReadAgentRelease is AgentRelease for who doesn't serve the region, but has its file.
func ReadAgentRelease(region io.ReaderAt, p Pointer) string {
	var b [releaseBytes]byte
	if _, err := region.ReadAt(b[:], int64(p.Offset)+offAgentRelease); err != nil {
		return ""
	}
	return takeRelease(b[:])
}

func putRelease(mem []byte, name string) {
	var b [releaseBytes]byte
	copy(b[:], name)
	copy(mem, b[:])
}

// takeRelease copies a name and takes of the copy what can do no harm in a log or on a terminal.
func takeRelease(mem []byte) string {
	var b [releaseBytes]byte
	copy(b[:], mem)
	n := 0
	for n < len(b) && b[n] > ' ' && b[n] < 0x7f {
		n++
	}
	return string(b[:n])
}
