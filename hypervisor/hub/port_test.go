package hub_test

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"pegasus/callbuf"
	wire "pegasus/callbuf/region"
	"pegasus/hypervisor/kvm"
)

// plug gives the machine a port, as QEMU does, and returns its end once the hub has the other.
func (m *machine) plug() *net.UnixConn {
	m.t.Helper()
	path := kvm.PortPath(m.path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		m.t.Fatal(err)
	}
	os.Remove(path)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { l.Close() })
	l.SetDeadline(time.Now().Add(soon))
	c, err := l.AcceptUnix()
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(soon))
	return c
}

func (m *machine) hubIs(b wire.Bell) {
	m.t.Helper()
	m.eventually("the hub's way of waiting", func() bool { return m.agent.Bell() == b })
}

// looks returns how often the hub polls within a time.
func (m *machine) looks(within time.Duration) (n int) {
	for end := time.Now().Add(within); time.Now().Before(end); {
		if m.agent.Beat() {
			n++
		}
	}
	return n
}

// clearRings reads the hub's rings so far.
func clearRings(t *testing.T, c *net.UnixConn) {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	for b := make([]byte, 100); ; {
		if _, err := c.Read(b); err != nil {
			c.SetReadDeadline(time.Now().Add(soon))
			return
		}
	}
}

// A hub with a port sleeps until it is rung, if the agent supports that; and rings the agent when that sleeps.
func TestHubSleeps(t *testing.T) {
	m := newMachine(t)
	m.begin()
	m.hubIs(wire.NoBell)
	port := m.plug()
	m.hubIs(wire.Awake)
	m.agent.SetBell(wire.Awake)
	m.hubIs(wire.Asleep)
	m.agent.Beat()
	if n := m.looks(300 * time.Millisecond); n > 2 {
		t.Errorf("a hub that sleeps looked %d times", n)
	}
	clearRings(t, port)
	m.agent.SetBell(wire.Asleep)
	for i := range uint32(5) {
		m.open(i)
		port.Write([]byte{1})
		m.knock()
		if n, err := port.Read(make([]byte, 100)); err != nil || n == 0 {
			t.Fatalf("the agent isn't rung: %v", err)
		}
		m.expect(wire.Need, i)
		m.hubIs(wire.Asleep)
	}
	m.open(9) // a lost ring costs a second
	m.knock()
	port.Close()
	m.hubIs(wire.NoBell)
	port = m.plug()
	m.hubIs(wire.Asleep)
	clearRings(t, port)
	m.stopHub()
	if _, err := port.Read(make([]byte, 1)); err != nil && err != io.EOF { // closing the port wakes, too
		t.Errorf("an agent that sleeps isn't told that its hub ends: %v", err)
	}
}

// A machine that rings without end is served now and then.
func TestHubIsRungWithoutEnd(t *testing.T) {
	m := newMachine(t)
	m.begin()
	port := m.plug()
	m.agent.SetBell(wire.Awake)
	m.hubIs(wire.Asleep)
	go func() {
		for b := make([]byte, 4096); ; {
			if _, err := port.Write(b); err != nil {
				return
			}
		}
	}()
	if n := m.looks(time.Second); n > 2000 {
		t.Errorf("the hub looked %d times in a second", n)
	}
}

// A segment has a doorbell if process, worker and agent support it, and the machine has a port. Then a ring reaches
// the worker.
func TestBellOfSegment(t *testing.T) {
	m := newMachine(t)
	m.begin()
	serve := func(number uint32, want uint64) {
		t.Helper()
		m.open(number)
		c := m.knock()
		m.expect(wire.Need, number)
		m.send(wire.Lend, number, lend(segment...))
		if l := m.loan(c); l.Features != want {
			t.Errorf("process %d: features %#x, not %#x", number, l.Features, want)
		}
		worker, servant := m.worker(c)
		m.expect(wire.Welcome, number)
		m.send(wire.Data, number, []byte{0})
		worker.SetReadDeadline(time.Now().Add(soon))
		if n, err := worker.Read(make([]byte, 10)); n != 1 || err != nil {
			t.Errorf("process %d: %d bytes to the worker, %v", number, n, err)
		}
		m.send(wire.Close, number, nil)
		servant.end()
		m.expect(wire.Gone, number)
	}
	m.may = callbuf.FeatureBell
	serve(1, 0)
	m.plug()
	m.hubIs(wire.Awake)
	serve(2, 0)
	m.agent.SetBell(wire.Awake)
	serve(3, callbuf.FeatureBell)
	m.may = 0
	serve(4, 0)
	m.may = 1 << 40
	serve(5, 0)
	m.may = callbuf.FeatureRouse
	serve(6, 0)
	m.may = callbuf.FeatureBell | callbuf.FeatureRouse
	serve(7, callbuf.FeatureBell|callbuf.FeatureRouse)
}

// lendBell takes a process to the point where it has a worker, and a segment with a doorbell that rings the port.
func (m *machine) lendBell(port *net.UnixConn, features uint64) (*callbuf.Guest, []byte, *net.UnixConn) {
	m.t.Helper()
	m.may = features
	m.open(1)
	port.Write([]byte{1})
	c := m.knock()
	m.expect(wire.Need, 1)
	m.send(wire.Lend, 1, lend(segment...))
	port.Write([]byte{1})
	m.loan(c)
	worker, servant := m.worker(c)
	m.t.Cleanup(servant.end)
	m.expect(wire.Welcome, 1)
	f, err := os.OpenFile(m.path, os.O_RDWR, 0)
	if err != nil {
		m.t.Fatal(err)
	}
	defer f.Close()
	mem, err := callbuf.MapParts(f, segment)
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { callbuf.UnmapParts(mem) })
	g, err := callbuf.Open(mem)
	if err != nil {
		m.t.Fatal(err)
	}
	g.RingBy(func() { port.Write([]byte{1}) })
	return g, mem, worker
}

func say(t *testing.T, g *callbuf.Guest) {
	t.Helper()
	if err := g.Send(callbuf.Header{Op: 1}, nil, func() error { return nil }); err != nil {
		t.Error(err)
	}
}

// A ring at the port is enough to wake the worker of the process that has rung.
func TestHubRouses(t *testing.T) {
	m := newMachine(t)
	m.begin()
	if !m.agent.HubRouses() {
		t.Fatal("the hub doesn't say so")
	}
	port := m.plug()
	m.agent.SetBell(wire.Awake)
	m.hubIs(wire.Asleep)
	const features = callbuf.FeatureBell | callbuf.FeatureRouse
	g, mem, _ := m.lendBell(port, features)
	host := callbuf.NewHost(mem, g.Layout(), callbuf.FeatureApart|features)
	for quickly, end := false, time.Now().Add(soon); !quickly; { // a worker that isn't woken polls every 100 ms
		var p callbuf.Packet
		woken := make(chan time.Time)
		go func() {
			for !host.Ready() {
				host.Park(10 * time.Second)
			}
			woken <- time.Now()
		}()
		time.Sleep(40 * time.Millisecond) // so that it sleeps
		sent := time.Now()
		say(t, g)
		quickly = (<-woken).Sub(sent) < 20*time.Millisecond
		if ok, err := host.Next(&p); !ok || err != nil {
			t.Fatal(ok, err)
		}
		if !quickly && time.Now().After(end) {
			t.Fatal("nobody wakes the worker")
		}
	}
}

// A worker that sleeps elsewhere is woken by a message.
func TestHubRousesByMessage(t *testing.T) {
	m := newMachine(t)
	m.begin()
	port := m.plug()
	m.agent.SetBell(wire.Awake)
	m.hubIs(wire.Asleep)
	_, _, worker := m.lendBell(port, callbuf.FeatureBell)
	port.Write([]byte{1})
	worker.SetReadDeadline(time.Now().Add(soon))
	if n, err := worker.Read(make([]byte, 10)); n != 1 || err != nil {
		t.Errorf("%d bytes to the worker, %v", n, err)
	}
}

// A worker that doesn't read blocks no other process.
func TestRingsUnread(t *testing.T) {
	m := newMachine(t)
	m.begin()
	m.serve(1)
	for range 2000 {
		m.send(wire.Data, 1, []byte{0})
	}
	m.open(2)
	m.knock()
}
