package agent

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pegasus/callbuf"
)

func openEndpoint(t *testing.T, patience time.Duration) (d *endpoint, socket string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "pg")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket = filepath.Join(dir, "run/guest.sock")
	l, err := listen(nil, socket, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	d = &endpoint{log: slog.New(slog.DiscardHandler), release: "v1", patience: patience, record: filepath.Join(dir, "record")}
	go d.accept(l)
	return d, socket
}

// say sends words to a socket and returns the answer.
func say(t *testing.T, socket string, words []byte) string {
	t.Helper()
	answer, err := exchange(socket, words)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

func exchange(socket string, words []byte) (string, error) {
	c, err := net.Dial("unixpacket", socket)
	if err != nil {
		return "", err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Minute))
	if _, err := c.Write(words); err != nil {
		return "", err
	}
	buf := make([]byte, 4096)
	n, err := c.Read(buf)
	return string(buf[:n]), err
}

// While there is no session, programs wait for one, and receive the reason after a timeout.
func TestEarly(t *testing.T) {
	d, socket := openEndpoint(t, 100*time.Millisecond)
	if !d.because("no region here") || d.because("no region here") {
		t.Error("what is new isn't told apart")
	}
	hello := callbuf.Hello{Version: callbuf.Version}.Append(nil)
	w, err := callbuf.ParseWelcome([]byte(say(t, socket, hello)))
	if err != nil || w.Result != resultSystemNotReady || w.Message != "no region here" {
		t.Errorf("%+v, %v", w, err)
	}
	if w, err := callbuf.ParseWelcome([]byte(say(t, socket, []byte("good day")))); err != nil || w.Result != resultSystemDriverMismatch {
		t.Errorf("nonsense: %+v, %v", w, err)
	}
	if st, err := Ask(socket); err != nil || st != (Status{Release: "v1", Why: "no region here"}) {
		t.Errorf("%+v, %v", st, err)
	}

	// A process that connected before there was a session is passed to it.
	d, socket = openEndpoint(t, time.Minute)
	c, err := net.Dial("unixpacket", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write(hello); err != nil {
		t.Fatal(err)
	}
	s := &session{events: make(chan func(), 1)}
	time.AfterFunc(100*time.Millisecond, func() { d.leadTo(s) })
	select {
	case <-s.events:
	case <-time.After(time.Minute):
		t.Error("a process that waits isn't let in")
	}
}

// A process that had a worker waits for the agent to resume its session, if there is a record of one.
func TestComesBack(t *testing.T) {
	d, socket := openEndpoint(t, 100*time.Millisecond)
	back := callbuf.Hello{Version: callbuf.Version, Features: callbuf.HelloBack}.Append(nil)
	began := time.Now()
	if w, err := callbuf.ParseWelcome([]byte(say(t, socket, back))); err != nil || w.Result != resultUnknown {
		t.Errorf("no session any more: %+v, %v", w, err)
	}
	if took := time.Since(began); took < lastWords {
		t.Errorf("it is told after %v, before its worker can", took)
	}
	if err := os.WriteFile(d.record, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if said, err := exchange(socket, back); said != "" || !errors.Is(err, io.EOF) {
		t.Errorf("a session to come: %q, %v", said, err)
	}
}

// systemd passes a socket to the process that it starts, and to no other.
func TestInherit(t *testing.T) {
	if os.Getenv("PEGASUS_TEST_INHERIT") != "" {
		_, sockets := inherit()
		l, err := listen(sockets, "/nonexistent/guest.sock", "")
		if err != nil {
			t.Fatal(err)
		}
		t.Log("listening at", l.Addr())
		return
	}
	dir, err := os.MkdirTemp("", "pg")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	child := func(network, count string) (string, error) {
		path := filepath.Join(dir, network)
		l, err := net.ListenUnix(network, &net.UnixAddr{Name: path, Net: network})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		f, err := l.File()
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		cmd := exec.Command("sh", "-c", `LISTEN_PID=$$ exec "$0" -test.run '^TestInherit$' -test.v`, os.Args[0])
		cmd.Env = append(os.Environ(), "PEGASUS_TEST_INHERIT=1", "LISTEN_FDS="+count)
		cmd.ExtraFiles = []*os.File{f}
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := child("unixpacket", "1"); err != nil || !strings.Contains(out, "listening at "+filepath.Join(dir, "unixpacket")) {
		t.Errorf("%v: %s", err, out)
	}
	if out, err := child("unix", "1"); err == nil || !strings.Contains(out, "want ListenSequentialPacket") {
		t.Errorf("a stream: %v: %s", err, out)
	}
	if out, err := child("unixpacket", "2"); err == nil || !strings.Contains(out, "systemd gave 2 sockets") {
		t.Errorf("two: %v: %s", err, out)
	}
	t.Setenv("LISTEN_PID", "1")
	t.Setenv("LISTEN_FDS", "1")
	if s, sockets := inherit(); len(s.kept)+len(sockets) != 0 {
		t.Errorf("took what is another's: %v, %v", s.kept, sockets)
	}
}

func TestNotify(t *testing.T) {
	notify("READY=1") // no NOTIFY_SOCKET is set
	for _, path := range []string{filepath.Join(t.TempDir(), "n"), fmt.Sprintf("@pegasus-test-notify-%d", os.Getpid())} {
		l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
		if err != nil {
			t.Fatal(err)
		}
		t.Setenv("NOTIFY_SOCKET", path)
		notify("READY=1")
		buf := make([]byte, 100)
		l.SetReadDeadline(time.Now().Add(time.Minute))
		n, err := l.Read(buf)
		if err != nil || string(buf[:n]) != "READY=1" {
			t.Errorf("%s: %q, %v", path, buf[:n], err)
		}
		l.Close()
	}
}
