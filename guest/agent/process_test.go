package agent

import (
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pegasus/callbuf"
	"pegasus/callbuf/region"
)

// The agent rejects programs beyond the hub's limit: the hub would treat them as a protocol violation.
func TestCrowd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	come := func() (here, there *net.UnixConn) {
		there, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { there.Close() })
		if here, err = l.AcceptUnix(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { here.Close() })
		return here, there
	}
	s := &session{
		agent: Agent{Dir: filepath.Join(t.TempDir(), "region"), Log: slog.New(slog.DiscardHandler)}, memory: noMemory{}, serving: true,
		control: region.NewGuest(make([]byte, region.ControlBytes)), processes: map[uint32]*process{}, events: make(chan func(), 1000),
	}
	var last *net.UnixConn
	for range region.MaxProcesses + 1 {
		var here *net.UnixConn
		here, last = come()
		s.open(here, callbuf.Hello{Version: callbuf.Version}, time.Now())
	}
	if len(s.processes) != region.MaxProcesses || len(s.outbox) != region.MaxProcesses {
		t.Errorf("%d processes, %d messages", len(s.processes), len(s.outbox))
	}
	buf := make([]byte, callbuf.WelcomeBytes)
	last.SetDeadline(time.Now().Add(time.Minute))
	n, err := last.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	if w, err := callbuf.ParseWelcome(buf[:n]); err != nil || w.Result != resultSystemNotReady || !strings.Contains(w.Message, "there can't be more") {
		t.Errorf("%+v, %v", w, err)
	}
}

// A process that sends to its worker without end neither fills the agent's memory nor delays others.
func TestTalker(t *testing.T) {
	s := &session{processes: map[uint32]*process{1: {number: 1}, 2: {number: 2}}}
	for range 1000 {
		s.pass(s.processes[1], []byte{1})
	}
	s.pass(s.processes[2], []byte("where its memory lies"))
	if n := len(s.outbox); n != maxUnsent+1 || s.outbox[n-1].Process != 2 {
		t.Errorf("%d messages wait", n)
	}
	s.outbox = s.outbox[1:]
	s.pass(s.processes[1], []byte{1})
	if n := len(s.outbox); n != maxUnsent+1 {
		t.Errorf("%d messages wait after one was sent", n)
	}
}

// The memory that the machine has for a process limits the size that a program requests.
func TestMostArena(t *testing.T) {
	for _, c := range []struct{ memory, hello, want uint64 }{{0, 0, 0}, {0, 9, 9}, {5, 0, 5}, {5, 9, 5}, {5, 3, 3}} {
		here, _ := pair(t)
		s := &session{
			agent: Agent{Dir: filepath.Join(t.TempDir(), "region"), Log: slog.New(slog.DiscardHandler)}, memory: noMemory{most: c.memory}, serving: true,
			control: region.NewGuest(make([]byte, region.ControlBytes)), processes: map[uint32]*process{}, events: make(chan func(), 1000),
		}
		s.open(here, callbuf.Hello{Version: callbuf.Version, MostBytes: c.hello}, time.Now())
		if hello, _, err := region.ParseOpen(s.outbox[0].Body); err != nil || hello.MostBytes != c.want {
			t.Errorf("%+v: %d, %v", c, hello.MostBytes, err)
		}
	}
}

// A process that doesn't read its socket delays no other, and one that does receives its worker's messages.
func TestDeafProcess(t *testing.T) {
	ours, theirs := pair(t)
	s := &session{processes: map[uint32]*process{1: {number: 1, worker: ours}}}
	begin := time.Now()
	for range 2000 {
		s.obey(region.Message{Kind: region.Data, Process: 1, Body: []byte("said")})
	}
	if d := time.Since(begin); d > 20*time.Second {
		t.Errorf("the agent has waited %v for it", d)
	}
	buf := make([]byte, 10)
	if n, err := theirs.Read(buf); err != nil || string(buf[:n]) != "said" {
		t.Errorf("%q, %v", buf[:n], err)
	}
}

// blocked is a SharedMemory in which the machine's own kernel refuses allocations.
type blocked struct{ noMemory }

func (blocked) NoRoom() region.Message { return region.Message{Kind: region.Grant} }

func (blocked) Create(string, uint64) (*Allocation, error) {
	return nil, &Obstacle{errors.New("give it more memory")}
}

// A process without an allocation receives the agent's reason, since the hub would report other reasons.
func TestObstacle(t *testing.T) {
	ours, theirs := pair(t)
	p := &process{number: 1, daemon: ours}
	s := &session{agent: Agent{Log: slog.New(slog.DiscardHandler)}, memory: blocked{}, processes: map[uint32]*process{1: p}}
	s.lend(p, region.NeedBody(4096))
	if len(s.outbox) != 1 || s.outbox[0].Kind != region.Close || s.outbox[0].Process != 1 {
		t.Errorf("the hub is told %v", s.outbox)
	}
	if p.daemon != nil {
		t.Fatal("it waits")
	}
	buf := make([]byte, callbuf.WelcomeBytes)
	n, err := theirs.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	if w, err := callbuf.ParseWelcome(buf[:n]); err != nil || w.Result != resultSystemNotReady || w.Message != "give it more memory" {
		t.Errorf("%+v, %v", w, err)
	}
}

// A process that has ended before its welcome is closed without a warning: a crowd of such processes would fill the log.
func TestEndedBeforeItsWelcome(t *testing.T) {
	ours, theirs := pair(t)
	theirs.Close()
	var lines strings.Builder
	p := &process{number: 1, daemon: ours}
	s := &session{agent: Agent{Log: slog.New(slog.NewTextHandler(&lines, nil))}, memory: noMemory{}, processes: map[uint32]*process{1: p}}
	s.welcome(p, callbuf.Welcome{Version: callbuf.Version, Result: resultSystemNotReady}.Append(nil))
	if len(s.outbox) != 1 || s.outbox[0].Kind != region.Close || s.outbox[0].Process != 1 {
		t.Errorf("the messages to the hub are %v, want one Close of process 1", s.outbox)
	}
	if lines.Len() > 0 {
		t.Errorf("the log has %q, want nothing", lines.String())
	}
}

// A machine was paused for so long that the host timed out a process that was just connecting. The machine's clock has
// gone on, as under Xen; but the process hasn't waited, and is opened again.
func TestComesAfterPause(t *testing.T) {
	ours, _ := pair(t)
	mem := make([]byte, region.ControlBytes)
	hub, guest := region.NewHost(mem), region.NewGuest(mem)
	guest.Begin(101)
	hub.Serve(101, 5)
	if !guest.Answered() {
		t.Fatal("no session")
	}
	const stood = time.Hour
	p := &process{number: 1, daemon: ours, hello: callbuf.Hello{Version: callbuf.Version}, came: time.Now().Add(-stood - time.Second)}
	s := &session{
		agent: Agent{Dir: filepath.Join(t.TempDir(), "region"), Log: slog.New(slog.DiscardHandler)}, memory: noMemory{},
		control: guest, serving: true, boot: 101, last: 1, looked: time.Now().Add(-stood), heard: time.Now().Add(-stood),
		processes: map[uint32]*process{1: p}, events: make(chan func(), 1000),
	}
	hub.Beat()
	hub.Send(region.Message{Kind: region.Gone, Process: 1})
	if !s.step() {
		t.Fatal("there was nothing to do")
	}
	if again := s.processes[2]; len(s.processes) != 1 || again == nil || again.daemon == nil || len(s.outbox) != 1 || s.outbox[0].Kind != region.Open {
		t.Errorf("there are processes %v, and the hub is told %v", s.processes, s.outbox)
	}
}
