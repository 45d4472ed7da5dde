package main

import (
	"context"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"log/slog"
)

// A loop that makes no turn misses the watchdog; the status names it.
func TestServiceBeat(t *testing.T) {
	turns, sent := []uint64{5, 7}, []string(nil)
	s := &service{turns: func() []uint64 { return slices.Clone(turns) }, state: func() string { return "fine" }, send: func(text string) { sent = append(sent, text) }}
	last := s.beat([]uint64{4, 6})
	turns[0]++
	last = s.beat(last)
	turns[0], turns[1] = 9, 9
	s.beat(last)
	want := []string{"WATCHDOG=1\nSTATUS=fine", "STATUS=scheduler loop 2 of 2 makes no turns; fine", "WATCHDOG=1\nSTATUS=fine"}
	if !slices.Equal(sent, want) {
		t.Errorf("sent %q, want %q", sent, want)
	}
}

// The whole sequence arrives at systemd's socket, at half of the watchdog's limit.
func TestServiceSequence(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_USEC", "20000")
	t.Setenv("WATCHDOG_PID", "")
	n := uint64(0)
	s := newService(slog.New(slog.DiscardHandler), func() []uint64 { n++; return []uint64{n} }, func() string { return "0 guests" })
	if s.every != 10*time.Millisecond {
		t.Errorf("interval %v, want 10ms", s.every)
	}
	read := func() string {
		t.Helper()
		socket.SetReadDeadline(time.Now().Add(time.Minute))
		buf := make([]byte, 1024)
		n, err := socket.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		return string(buf[:n])
	}
	s.ready()
	if got := read(); got != "READY=1\nSTATUS=0 guests" {
		t.Errorf("ready sent %q", got)
	}
	s.reload(func() {})
	if got := read(); !strings.HasPrefix(got, "RELOADING=1\nMONOTONIC_USEC=") {
		t.Errorf("reload sent %q", got)
	}
	if got := read(); got != "READY=1\nSTATUS=0 guests" {
		t.Errorf("the end of reload sent %q", got)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); s.run(ctx) }()
	if got := read(); got != "WATCHDOG=1\nSTATUS=0 guests" {
		t.Errorf("run sent %q", got)
	}
	cancel()
	for got := ""; got != "STOPPING=1"; got = read() {
	}
	<-done
}

func TestIsHub(t *testing.T) {
	line := "/proc/self/exe\x00hub\x00--runtime-dir\x00/run/pegasus\x00--region\x00/dev/shm/pegasus/web\x00"
	if !isHub([]byte(line), "/run/pegasus") {
		t.Error("a hub of the directory isn't found")
	}
	for _, other := range []string{line[:20], strings.Replace(line, "hub", "worker", 1), ""} {
		if isHub([]byte(other), "/run/pegasus") {
			t.Errorf("%q counts as a hub", other)
		}
	}
	if isHub([]byte(line), "/run/other") {
		t.Error("a hub of another directory counts")
	}
}
