package hub

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A daemon that doesn't answer gets one request at a time, and none for processes that have ended.
func TestGoneBeforeAsked(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var d endpoint
	var asked atomic.Int32
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if _, err := d.dial(ctx, func() (string, error) {
				asked.Add(1)
				cancel()
				return "", errors.New("no answer")
			}); !errors.Is(err, errAway) {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := asked.Load(); n != 1 {
		t.Errorf("it is asked %d times", n)
	}
}

// A daemon that refuses the domain doesn't count as away, and gets no further request.
func TestRefusal(t *testing.T) {
	no := &Refusal{errors.New("the domain isn't declared")}
	var d endpoint
	asked := 0
	_, err := d.dial(t.Context(), func() (string, error) { asked++; return "", no })
	if err != no || asked != 1 {
		t.Errorf("after %d times: %v", asked, err)
	}
}

// A daemon that restarts gets one request for all waiting processes, though its address is the previous one's: with
// each answer it holds the domain once more.
func TestAskedOnceForAll(t *testing.T) {
	path := filepath.Join(t.TempDir(), "endpoint")
	var asked atomic.Int32
	var up atomic.Bool
	ask := func() (string, error) {
		if !up.Load() {
			return "", errors.New("no answer")
		}
		asked.Add(1)
		return path, nil
	}
	listen := func() *net.UnixListener {
		l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	var d endpoint
	dial := func() {
		c, err := d.dial(t.Context(), ask)
		if err != nil {
			t.Error(err)
			return
		}
		c.Close()
	}
	l := listen()
	up.Store(true)
	dial()
	up.Store(false)
	l.Close()
	var all sync.WaitGroup
	for range 100 {
		all.Go(dial)
	}
	time.Sleep(20 * time.Millisecond) // they find no daemon there
	defer listen().Close()
	up.Store(true)
	all.Wait()
	if n := asked.Load(); n != 2 {
		t.Errorf("two daemons are asked %d times", n)
	}
}

// A stopped daemon with a full backlog of processes refuses none: each waits until it continues.
func TestStoppedDaemon(t *testing.T) {
	path := filepath.Join(t.TempDir(), "endpoint")
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrUnix{Name: path}), unix.Listen(fd, 1)); err != nil {
		t.Fatal(err)
	}
	full := false
	for range 10 {
		c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
		if full = errors.Is(err, unix.EAGAIN); full {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	if !full {
		t.Fatal("more can wait there than were to")
	}
	time.AfterFunc(200*time.Millisecond, func() {
		for range 2 {
			if c, _, err := unix.Accept(fd); err == nil {
				unix.Close(c)
			}
		}
	})
	var d endpoint
	c, err := d.dial(t.Context(), func() (string, error) { return path, nil })
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}
