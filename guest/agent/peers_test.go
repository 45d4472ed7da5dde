package agent

import (
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"pegasus/callbuf"
	"pegasus/callbuf/bell"
	"pegasus/callbuf/region"
	"pegasus/internal/testkit"
)

// Processes that are silent, stop after parts of a hello, hang up at each step or read nothing neither delay others nor
// keep resources of the agent beyond their timeouts.
func TestPeers(t *testing.T) {
	hello := callbuf.Hello{Version: callbuf.Version}.Append(nil)
	d, socket := openEndpoint(t, 100*time.Millisecond)
	d.because("no region here")
	before := runtime.NumGoroutine()
	began := time.Now()
	var peers []net.Conn
	for range 20 {
		for name, behave := range map[string]func(*net.UnixConn) error{
			"says nothing":             func(*net.UnixConn) error { return nil },
			"hangs up at once":         func(c *net.UnixConn) error { return c.Close() },
			"says no more":             func(c *net.UnixConn) error { return c.CloseWrite() },
			"reads nothing":            func(c *net.UnixConn) error { c.CloseRead(); _, err := c.Write(hello); return err },
			"asks and hangs up":        func(c *net.UnixConn) error { _, err := c.Write(question); c.Close(); return err },
			"asks and reads nothing":   func(c *net.UnixConn) error { _, err := c.Write(question); return err },
			"says hello and hangs up":  func(c *net.UnixConn) error { _, err := c.Write(hello); c.Close(); return err },
			"says hello byte for byte": func(c *net.UnixConn) error { return trickle(c, hello) },
			"says hello without end":   func(c *net.UnixConn) error { return trickle(c, append(hello, hello...)) },
		} {
			c, err := net.Dial("unixpacket", socket)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if err := behave(c.(*net.UnixConn)); err != nil && name != "says hello byte for byte" && name != "says hello without end" {
				t.Fatalf("%s: %v", name, err)
			}
			if name == "says nothing" {
				peers = append(peers, c)
			}
		}
	}
	if st, err := Ask(socket); err != nil || st.Why != "no region here" {
		t.Errorf("beside them: %+v, %v", st, err)
	}
	if took := time.Since(began); took > helloTime {
		t.Errorf("others have waited %v", took)
	}
	for _, c := range peers {
		c.SetReadDeadline(time.Now().Add(10 * helloTime))
		if n, err := c.Read(make([]byte, 1)); n > 0 || os.IsTimeout(err) {
			t.Fatalf("one that says nothing is waited for without an end: %v", err)
		}
	}
	testkit.Eventually(t, "the connections' goroutines have ended", func() bool { return runtime.NumGoroutine() <= before })
}

// trickle writes one byte per message, and ends when the agent hangs up.
func trickle(c net.Conn, text []byte) error {
	for i := range text {
		if _, err := c.Write(text[i : i+1]); err != nil {
			return err
		}
	}
	return nil
}

// A host that doesn't answer at all, answers the session but no process, or falls silent delays no process beyond its
// timeout, and the session ends.
func TestHostHangs(t *testing.T) {
	refusal := func(t *testing.T, c *net.UnixConn) string {
		t.Helper()
		c.SetReadDeadline(time.Now().Add(time.Minute))
		buf := make([]byte, 1024)
		n, err := c.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		w, err := callbuf.ParseWelcome(buf[:n])
		if err != nil || w.Result != resultSystemNotReady {
			t.Fatalf("%+v, %v", w, err)
		}
		return w.Message
	}
	newSession := func(t *testing.T) (*session, *region.Host) {
		mem := make([]byte, region.ControlBytes)
		hub, guest := region.NewHost(mem), region.NewGuest(mem)
		port := bell.Listen(t.Context(), func() (bell.Conn, error) { return nil, os.ErrNotExist }, false, func(error) {})
		s := &session{
			agent: Agent{Dir: filepath.Join(t.TempDir(), "region"), Log: slog.New(slog.DiscardHandler)}, memory: noMemory{}, control: guest,
			port: port, processes: map[uint32]*process{}, events: make(chan func(), 1000), over: make(chan struct{}),
		}
		s.begin()
		return s, hub
	}
	await := func(s *session, until time.Duration) { // handles all events until then
		for end := time.After(until); ; {
			select {
			case do := <-s.events:
				do()
			case <-end:
				return
			}
		}
	}
	for name, c := range map[string]struct {
		hangs func(s *session, hub *region.Host, c *net.UnixConn)
		least time.Duration
		want  string
	}{
		"never answers": {func(s *session, _ *region.Host, c *net.UnixConn) {
			s.open(c, callbuf.Hello{Version: callbuf.Version}, time.Now())
		}, hubTime, hostAway},
		"serves no process": {func(s *session, hub *region.Host, c *net.UnixConn) {
			s.processes[1] = &process{number: 1, daemon: c, came: time.Now()}
			s.limit(s.processes[1], answerTime)
		}, answerTime, "the host took too long to answer"},
	} {
		t.Run(name, func(t *testing.T) {
			ours, theirs := pair(t)
			ours.SetDeadline(time.Time{})
			synctest.Test(t, func(t *testing.T) {
				s, hub := newSession(t)
				c.hangs(s, hub, ours)
				await(s, c.least-time.Second)
				if len(s.processes) == 0 && name != "never answers" {
					t.Error("it lost patience early")
				}
				await(s, 3*time.Second)
			})
			if said := refusal(t, theirs); said != c.want {
				t.Errorf("it is told %q, want %q", said, c.want)
			}
		})
	}
	t.Run("falls silent", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, hub := newSession(t)
			hub.Serve(s.boot, 5)
			hub.Beat()
			if s.step(); !s.serving {
				t.Fatal("no session")
			}
			for range 10 { // slow is not silent
				time.Sleep(silence - time.Second)
				hub.Beat()
				if s.step(); !s.serving {
					t.Fatal("it lost patience with one that is slow")
				}
			}
			time.Sleep(silence + time.Second)
			if s.step(); s.serving {
				t.Error("one that is silent is waited for")
			}
		})
	})
}

// A systemd that reads no messages doesn't block the agent.
func TestNotifyHangs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "n")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	full, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(full)
	for unix.Sendto(full, []byte("full"), unix.MSG_NOSIGNAL, &unix.SockaddrUnix{Name: path}) == nil {
	}
	over := make(chan error, 1)
	go func() { over <- notifyWith("READY=1", nil) }()
	select {
	case err := <-over:
		if err == nil {
			t.Error("a message that wasn't received is no error")
		}
	case <-time.After(30 * time.Second):
		t.Error("it waits without an end")
	}
}
