package main

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"pegasus/backend/control"
)

var errEnough = errors.New("enough")

// enough is an output that fails after the first table.
type enough struct{ tables int }

func (e *enough) Write(b []byte) (int, error) {
	if e.tables += strings.Count(string(b), "DOMAIN"); e.tables > 1 {
		return 0, errEnough
	}
	return len(b), nil
}

// A daemon that accepts connections and ends each costs domains --watch next to nothing: the command connects once a
// second.
func TestWatchOfEndingDaemon(t *testing.T) {
	dir, err := os.MkdirTemp("", "pg") // short: socket paths are at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, control.SocketName), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	var connections atomic.Int32
	var healthy atomic.Bool
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if connections.Add(1) > 1 && !healthy.Load() {
				c.Close()
				continue
			}
			if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
				fmt.Fprint(c, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\nConnection: close\r\n\r\n[]")
			}
			c.Close()
		}
	}()
	time.AfterFunc(2500*time.Millisecond, func() { healthy.Store(true) })
	var said strings.Builder
	c := newCall(find("domains"), &streams{strings.NewReader(""), &printed{Writer: &enough{}}, &said})
	c.dir = dir
	if err := c.watchDomains(); !errors.Is(err, errEnough) {
		t.Errorf("got %v, want %v", err, errEnough)
	}
	if n := connections.Load(); n > 6 {
		t.Errorf("%d connections in 3 s", n)
	}
	if got := strings.Count(said.String(), "waiting for the next daemon"); got != 1 {
		t.Errorf("it reports %q, want the wait once", said.String())
	}
}

// The commands about all domains report it if there is none.
func TestNoDomains(t *testing.T) {
	dir, err := os.MkdirTemp("", "pg")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, control.SocketName), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	empty := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "[]") })}
	go empty.Serve(l)
	t.Cleanup(func() { empty.Close() })
	for _, command := range []string{"domains", "why"} {
		var printed, said strings.Builder
		status := run([]string{command, "--runtime-dir", dir}, &streams{strings.NewReader(""), &printed, &said})
		if got := printed.String(); status != 0 || !strings.HasPrefix(got, "no domains: ") {
			t.Errorf("%s: status %d, %q %q", command, status, got, said.String())
		}
	}
}
