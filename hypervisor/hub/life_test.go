package hub_test

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"

	wire "pegasus/callbuf/region"
	"pegasus/hypervisor/hub"
)

// An agent that takes over a session continues with the messages in the rings. Its messages about processes unknown
// to the hub get an answer.
func TestAnotherAgent(t *testing.T) {
	m := newMachine(t)
	m.begin()
	worker, servant := m.serve(1)
	m.open(2)
	m.knock()
	generation := m.agent.Generation()
	m.eventually("the agent is told what is needed", func() bool {
		peek, _ := wire.ResumeGuest(bytes.Clone(m.mem[controlAt:controlAt+wire.ControlBytes]), m.boot, generation)
		_, ok, _ := peek.Receive()
		return ok
	})
	if _, ok := wire.ResumeGuest(m.mem[controlAt:], m.boot, generation+1); ok {
		t.Error("a session of another generation is resumed")
	}
	next, ok := wire.ResumeGuest(m.mem[controlAt:], m.boot, generation)
	if !ok || next.Over() {
		t.Fatal("the session isn't resumed")
	}
	m.agent = next
	m.send(wire.Close, 2, nil)
	m.expect(wire.Need, 2) // the previous agent didn't read it
	m.expect(wire.Gone, 2)
	m.send(wire.Close, 2, nil)
	m.expect(wire.Gone, 2)
	m.send(wire.Data, 1, []byte("still there"))
	buf := make([]byte, 100)
	if n, err := worker.Read(buf); err != nil || string(buf[:n]) != "still there" {
		t.Fatalf("%q, %v", buf[:n], err)
	}
	servant.end()
	worker.Close()
	m.expect(wire.Gone, 1)
	if p := m.poison(); p != 999 {
		t.Errorf("the segment says %d of a worker that has died", p)
	}
}

// poison is the result of every call in the segment.
func (m *machine) poison() int32 {
	at := segment[0].Offset + 0x80
	return int32(m.mem[at]) | int32(m.mem[at+1])<<8
}

// A machine that is restored to an earlier state has its old session dropped, at any point, and begins a new one.
func TestPutBack(t *testing.T) {
	m := newMachine(t)
	m.begin()
	first := m.agent.Generation()
	saved := bytes.Clone(m.mem)
	_, servant := m.serve(1)
	copy(m.mem, saved)
	servant.end()
	m.dropped()
	m.begin()
	if second := m.agent.Generation(); second <= first {
		t.Errorf("generation %d after %d", second, first)
	}
	m.forgetKnocks()
	_, servant = m.serve(1)
	copy(m.mem, saved) // with the session before the last one
	servant.end()
	m.eventually("the session is dropped", func() bool { return le64(m.mem[controlAt+0x80:]) != m.boot })
	m.begin()
	m.serve(1)
}

func le64(b []byte) (n uint64) {
	for i := range 8 {
		n |= uint64(b[i]) << (8 * i)
	}
	return n
}

// The memory of a restored machine is filled after its hub has started, page by page.
func TestRestored(t *testing.T) {
	m := newMachine(t)
	m.begin()
	first := m.agent.Generation()
	saved := bytes.Clone(m.mem)
	agent := *m.agent
	m.stopHub()
	clear(m.mem[:regionBytes-wire.PageBytes])
	copy(m.mem[regionBytes-wire.PageBytes:], wire.Mark())
	clear(m.mem[regionBytes-wire.PageBytes+wire.SectorBytes:])
	m.startHub()
	copy(m.mem[regionBytes-wire.PageBytes:], saved[regionBytes-wire.PageBytes:])
	time.Sleep(20 * time.Millisecond)
	copy(m.mem, saved)
	m.eventually("the agent learns that its session is over", agent.Over)
	m.begin()
	if second := m.agent.Generation(); second <= first {
		t.Errorf("generation %d after %d", second, first)
	}
	m.serve(1)
}

// An agent that opens and closes processes without end, and reads no messages, gets no more messages.
func TestDeaf(t *testing.T) {
	m := newMachine(t)
	m.begin()
	sent := 0
	for quiet := time.Now(); time.Since(quiet) < 300*time.Millisecond && sent < 8*hub.MaxOutbox; {
		if m.agent.Send(wire.Message{Kind: wire.Close, Process: 7}) {
			quiet = time.Now()
			sent++
		}
	}
	if sent > hub.MaxOutbox+3*wire.Slots {
		t.Errorf("%d messages of one that doesn't listen were taken", sent)
	}
	for range sent - wire.Slots {
		m.expect(wire.Gone, 7)
	}
}

// A machine that doesn't provide memory for long may be paused: its process isn't refused.
func TestPausedWhileOpening(t *testing.T) {
	t.Parallel()                                   // it mostly sleeps
	m := &machine{t: t, patience: 2 * time.Second} // in which the other process gets its memory
	m.start()
	m.begin()
	m.open(1)
	m.knock()
	m.expect(wire.Need, 1)
	m.expect(wire.Gone, 1)
	m.send(wire.Lend, 1, lend(segment...)) // too late
	m.serve(2)
}

// Random writes into the control area cost the machine its session, and the hub little: it begins at most one session
// each second.
func TestScribbles(t *testing.T) {
	m := newMachine(t)
	m.begin()
	began := time.Now()
	for time.Since(began) < 1500*time.Millisecond {
		m.boot++
		m.agent.Begin(m.boot)
		for at := 0x80; at < 0x240; at += 64 {
			m.mem[controlAt+at]++
		}
	}
	m.stopHub()
	if n, took := strings.Count(m.log.String(), "\n"), time.Since(began); n > 8+2*int(took/time.Second) {
		t.Errorf("%d lines in the log in %v:\n%s", n, took, m.log.String())
	}
	m.startHub()
	m.begin()
	m.forgetKnocks()
	m.serve(1)
}

// An agent loses its session if its kernel reports its end and it has no successor.
func TestDeserted(t *testing.T) {
	m := newMachine(t)
	m.begin()
	m.mem[controlAt+wire.ControlAgent] = 1
	worker, servant := m.serve(1)
	m.mem[controlAt+wire.ControlAgent] = 0
	worker.SetReadDeadline(time.Now().Add(soon))
	if _, err := worker.Read(make([]byte, 10)); err != io.EOF {
		t.Errorf("its worker isn't hung up on: %v", err)
	}
	servant.end()
	m.dropped()
	m.begin() // another agent
	m.serve(1)
}

// A machine with many processes that can't be served doesn't fill the log.
func TestRefusedWithoutEnd(t *testing.T) {
	m := newMachine(t)
	m.begin()
	began := time.Now()
	for i := uint32(1); i <= 40; i++ {
		m.open(i)
		m.knock()
		m.expect(wire.Need, i)
		m.send(wire.Lend, i, lend())
		m.expect(wire.Welcome, i)
		m.expect(wire.Gone, i)
	}
	m.stopHub()
	if n, took := strings.Count(m.log.String(), "isn't served"), time.Since(began); n < 1 || n > 2+int(took/time.Second) {
		t.Errorf("%d complaints in %v:\n%s", n, took, &m.log)
	}
}

// Endless messages of a worker to a machine that doesn't read are not kept.
func TestTalkativeWorker(t *testing.T) {
	m := newMachine(t)
	m.begin()
	worker, _ := m.serve(1)
	for range 5000 {
		if _, err := worker.Write([]byte("again")); err != nil {
			t.Fatal(err)
		}
	}
	m.open(2) // which is served nevertheless
	m.knock()
	said := 0
	m.eventually("the hub asks for the next one's segment", func() bool {
		got, ok, err := m.agent.Receive()
		if err != nil {
			t.Fatal(err)
		}
		if ok && got.Kind == wire.Data {
			said++
		}
		return ok && got.Kind == wire.Need
	})
	if said > 100 {
		t.Errorf("%d messages of a worker were kept", said)
	}
}
