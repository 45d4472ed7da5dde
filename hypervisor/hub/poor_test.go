package hub_test

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"pegasus/callbuf"
	wire "pegasus/callbuf/region"
	"pegasus/hypervisor/hub"
)

// poor is memory for which the host has no resources left for one process.
type poor struct {
	hub.Memory
	process uint32
}

func (p poor) Lend(to uint32, l callbuf.Layout, answer wire.Message) (hub.Segment, error) {
	if to == p.process {
		return hub.Segment{}, &hub.HostError{Err: unix.ENOMEM}
	}
	return p.Memory.Lend(to, l, answer)
}

// A host that has no memory left for one process refuses that one, with the reason. The machine hasn't misbehaved:
// its other programs continue.
func TestPoorHost(t *testing.T) {
	m := &machine{t: t, memory: func(m hub.Memory) hub.Memory { return poor{m, 2} }}
	m.start()
	m.begin()
	generation := m.agent.Generation()
	worker, _ := m.serve(1)
	m.open(2)
	m.knock()
	m.expect(wire.Need, 2)
	m.send(wire.Lend, 2, lend(segment...))
	if w, err := callbuf.ParseWelcome(m.expect(wire.Welcome, 2)); err != nil || w.Result != 802 || !strings.Contains(w.Message, "cannot allocate memory") {
		t.Errorf("%+v, %v", w, err)
	}
	m.expect(wire.Gone, 2)
	m.send(wire.Data, 1, []byte("still there"))
	buf := make([]byte, 100)
	if n, err := worker.Read(buf); err != nil || string(buf[:n]) != "still there" {
		t.Errorf("another's worker hears %q, %v", buf[:n], err)
	}
	if m.agent.Over() || m.agent.Generation() != generation {
		t.Error("the session is over")
	}
}
