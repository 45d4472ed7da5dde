package agent

import (
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"pegasus/callbuf/bell"
	"pegasus/callbuf/region"
	"pegasus/internal/testkit"
)

// pair returns both ends of a socket that preserves message boundaries.
func pair(t *testing.T) (ours, theirs *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "pair")
		c, err := net.FileConn(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		c.SetDeadline(time.Now().Add(time.Minute))
		ends[i] = c.(*net.UnixConn)
	}
	return ends[0], ends[1]
}

// A process's messages go to the hub as messages, and its doorbell goes straight into the port, if the hub supports
// that, and only then.
func TestListenTo(t *testing.T) {
	for _, c := range []struct{ port, hubRouses, straight bool }{{true, true, true}, {true, false, false}, {false, true, false}} {
		hub, ours := pair(t)
		ours.SetDeadline(time.Time{})
		ports := make(chan *net.UnixConn, 1)
		port := bell.Listen(t.Context(), func() (bell.Conn, error) {
			select {
			case p := <-ports:
				return p, nil
			default:
				return nil, os.ErrNotExist
			}
		}, true, func(error) {})
		if c.port {
			ports <- ours
			testkit.Eventually(t, "the port is live", port.Live)
		}
		s := &session{port: port, events: make(chan func()), processes: map[uint32]*process{}}
		server, program := pair(t)
		p := &process{number: 1, worker: server}
		s.processes[1] = p
		go s.listenTo(p, server, c.hubRouses)
		program.Write([]byte("more than a ring"))
		(<-s.events)()
		program.Write([]byte{0})
		if c.straight {
			if n, err := hub.Read(make([]byte, 10)); n != 1 || err != nil {
				t.Errorf("%+v: %d bytes at the port, %v", c, n, err)
			}
		} else {
			(<-s.events)()
		}
		program.Close()
		(<-s.events)()
		var kinds []region.Kind
		for _, m := range s.outbox {
			kinds = append(kinds, m.Kind)
		}
		want := 3 // data, the doorbell, the end
		if c.straight {
			want = 2
		}
		if len(kinds) != want || kinds[len(kinds)-1] != region.Close || string(s.outbox[0].Body) != "more than a ring" {
			t.Errorf("%+v: the hub is told %v", c, kinds)
		}
	}
}
