package region

import "io"

// Each side writes its build's name into the control area, for people. No decision depends on it.
const (
	offHostRelease  = 0xe00 // (h) before it answers
	offAgentRelease = 0xf00 // (g) before it begins a session
	releaseBytes    = 64
)

// SetRelease publishes the agent's build.
func (g *Guest) SetRelease(name string) { putRelease(g.mem[offAgentRelease:], name) }

// HostRelease returns the build of the hub that answered.
func (g *Guest) HostRelease() string { return takeRelease(g.mem[offHostRelease:]) }

// SetRelease publishes the hub's build.
func (h *Host) SetRelease(name string) { putRelease(h.mem[offHostRelease:], name) }

// AgentRelease returns the build published by the agent.
func (h *Host) AgentRelease() string { return takeRelease(h.mem[offAgentRelease:]) }

// ReadAgentRelease is AgentRelease for a program that does not serve the region, but has its file.
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

// takeRelease copies a name and returns the characters of the copy that are harmless in a log or on a
// terminal.
func takeRelease(mem []byte) string {
	var b [releaseBytes]byte
	copy(b[:], mem)
	n := 0
	for n < len(b) && b[n] > ' ' && b[n] < 0x7f {
		n++
	}
	return string(b[:n])
}
