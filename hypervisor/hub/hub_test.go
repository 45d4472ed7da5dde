package hub_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"pegasus/callbuf"
	wire "pegasus/callbuf/region"
	"pegasus/hypervisor"
	"pegasus/hypervisor/hub"
	"pegasus/hypervisor/kvm"
	"pegasus/internal/testkit"
)

const (
	regionBytes  = 16 << 20
	controlAt    = 4 << 20
	segmentAt    = 8 << 20
	segmentBytes = 2<<20 + 64<<10
)

var geometry = callbuf.Geometry{RingSlots: 128, ReplySlots: 16, EventWords: 64, ReleaseWords: 16, ArenaBytes: 64 << 10}

// soon bounds the waits on a slow and loaded machine.
const soon = 20 * time.Second

// machine simulates a virtual machine with its agent, a hub that serves it, and a daemon.
type machine struct {
	t       *testing.T
	path    string
	mem     []byte
	agent   *wire.Guest
	boot    uint64
	may     uint64 // features of its processes and the daemon's workers
	daemon  *net.UnixListener
	stop    context.CancelFunc
	stopped chan error

	patience time.Duration // of the hub
	memory   func(hub.Memory) hub.Memory
	log      strings.Builder // the hub's log
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	m := &machine{t: t}
	m.start()
	return m
}

func (m *machine) start() {
	t := m.t
	t.Helper()
	dir, err := os.MkdirTemp("", "pg")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	m.path, m.boot = filepath.Join(dir, "vm"), 100
	if err := kvm.MakeRegion(m.path, regionBytes, -1); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(m.path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if m.mem, err = callbuf.Map(f, regionBytes); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { callbuf.Unmap(m.mem) })
	endpoint := filepath.Join(dir, "endpoint")
	if m.daemon, err = net.ListenUnix("unixpacket", &net.UnixAddr{Name: endpoint, Net: "unixpacket"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.daemon.Close() })
	m.startHub()
	t.Cleanup(m.stopHub)
}

func (m *machine) startHub() {
	ctx, cancel := context.WithCancel(context.Background())
	m.stop, m.stopped = cancel, make(chan error, 1)
	region, err := kvm.Open(m.path)
	if err != nil {
		m.t.Fatal(err)
	}
	var memory hub.Memory = region
	if m.memory != nil {
		memory = m.memory(memory)
	}
	h := hub.Hub{Memory: memory, Log: slog.New(slog.NewTextHandler(&m.log, nil)), Endpoint: func() (string, error) { return m.daemon.Addr().String(), nil }}.Patient(m.patience)
	go func() { m.stopped <- h.Run(ctx) }()
}

func (m *machine) stopHub() {
	m.t.Helper()
	m.stop()
	if err := <-m.stopped; err != nil {
		m.t.Error(err)
	}
	m.stopped <- nil
}

func (m *machine) eventually(what string, ok func() bool) {
	m.t.Helper()
	testkit.Within(m.t, soon, what, ok)
}

// begin starts an agent.
func (m *machine) begin() {
	m.t.Helper()
	m.boot++
	m.agent = wire.NewGuest(m.mem[controlAt:])
	m.agent.Begin(m.boot)
	copy(m.mem[regionBytes-wire.PageBytes+wire.PointerOffset:], wire.Pointer{Offset: controlAt, Boot: 1}.Append(nil))
	m.eventually("the hub answers", m.agent.Answered)
}

func (m *machine) send(k wire.Kind, process uint32, body []byte) {
	m.t.Helper()
	m.eventually("room for a message", func() bool { return m.agent.Send(wire.Message{Kind: k, Process: process, Body: body}) })
}

func (m *machine) expect(k wire.Kind, process uint32) []byte {
	m.t.Helper()
	var got wire.Message
	m.eventually(k.String(), func() bool {
		var ok bool
		var err error
		if got, ok, err = m.agent.Receive(); err != nil {
			m.t.Fatal(err)
		}
		return ok
	})
	if got.Kind != k || got.Process != process {
		m.t.Fatalf("the hub says %v of process %d; want %v of %d", got.Kind, got.Process, k, process)
	}
	return got.Body
}

// dropped waits until the hub has dropped this session.
func (m *machine) dropped() {
	m.t.Helper()
	m.eventually("the session is dropped", m.agent.Over)
}

func (m *machine) open(process uint32) {
	m.t.Helper()
	m.send(wire.Open, process, wire.OpenBody(callbuf.Hello{Version: callbuf.Version, Features: m.may}, 7))
}

func lend(parts ...callbuf.Extent) []byte {
	b, err := wire.LendBody(parts)
	if err != nil {
		panic(err)
	}
	return b
}

// knock is the daemon's side of a connecting process, up to the terms.
func (m *machine) knock() *net.UnixConn {
	m.t.Helper()
	m.daemon.SetDeadline(time.Now().Add(soon))
	c, err := m.daemon.AcceptUnix()
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(soon))
	buf := make([]byte, 100)
	n, err := c.Read(buf)
	if err != nil {
		m.t.Fatal(err)
	}
	if h, err := callbuf.ParseHello(buf[:n]); err != nil || h.Features&callbuf.FeatureApart == 0 {
		m.t.Fatalf("%+v, %v", h, err)
	}
	b, _ := json.Marshal(hypervisor.Terms{Geometry: geometry, Features: m.may})
	if _, err := c.Write(b); err != nil {
		m.t.Fatal(err)
	}
	return c
}

// forgetKnocks closes the connections of a previous session's processes, which have all connected when another
// session has begun.
func (m *machine) forgetKnocks() {
	m.t.Helper()
	raw, err := m.daemon.SyscallConn()
	if err != nil {
		m.t.Fatal(err)
	}
	raw.Control(func(fd uintptr) {
		for {
			c, _, err := unix.Accept(int(fd))
			if err != nil {
				return
			}
			unix.Close(c)
		}
	})
}

func (m *machine) loan(c *net.UnixConn) hypervisor.Loan {
	m.t.Helper()
	buf, oob := make([]byte, 4096), make([]byte, 64)
	n, oobn, _, _, err := c.ReadMsgUnix(buf, oob)
	if err != nil {
		m.t.Fatal(err)
	}
	for _, f := range hub.Received(oob[:oobn]) {
		f.Close()
	}
	var l hypervisor.Loan
	if err := json.Unmarshal(buf[:n], &l); err != nil {
		m.t.Fatal(err)
	}
	return l
}

// servant is a process in place of a worker: the hub waits for its end.
type servant struct {
	cmd  *exec.Cmd
	gone chan struct{} // closed when it has ended
}

// end ends it as an unneeded worker ends.
func (s *servant) end() {
	s.cmd.Process.Kill()
	<-s.gone
}

// lives reports whether it hasn't ended: a zombie has ended, too.
func (s *servant) lives() bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid))
	_, state, _ := strings.Cut(string(stat), ") ")
	return err == nil && !strings.HasPrefix(state, "Z") && !strings.HasPrefix(state, "X")
}

func (m *machine) worker(c *net.UnixConn) (*net.UnixConn, *servant) {
	m.t.Helper()
	s := &servant{exec.Command("sleep", "3600"), make(chan struct{})}
	if err := s.cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	go func() { s.cmd.Wait(); close(s.gone) }()
	m.t.Cleanup(s.end)
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		m.t.Fatal(err)
	}
	f := os.NewFile(uintptr(fds[0]), "worker")
	defer f.Close()
	g, err := net.FileConn(f)
	if err != nil {
		m.t.Fatal(err)
	}
	w := callbuf.Welcome{Version: callbuf.Version, WorkerPID: uint32(s.cmd.Process.Pid), SegmentBytes: segmentBytes}
	if _, _, err := c.WriteMsgUnix(w.Append(nil), unix.UnixRights(fds[1], fds[1]), nil); err != nil {
		m.t.Fatal(err)
	}
	unix.Close(fds[1])
	return g.(*net.UnixConn), s
}

var segment = []callbuf.Extent{{Offset: segmentAt + 4<<20, Bytes: 1 << 20}, {Offset: segmentAt, Bytes: segmentBytes - 1<<20 - 4096}, {Offset: 0, Bytes: 4096}}

// serve takes a process to the point where it has a worker.
func (m *machine) serve(process uint32) (*net.UnixConn, *servant) {
	m.t.Helper()
	m.open(process)
	c := m.knock()
	if n, err := wire.ParseNeed(m.expect(wire.Need, process)); err != nil || n != segmentBytes {
		m.t.Fatalf("%d bytes are needed, %v", n, err)
	}
	m.send(wire.Lend, process, lend(segment...))
	if l := m.loan(c); l.Generation != m.agent.Generation() || len(l.Parts) != 3 {
		m.t.Fatalf("%+v", l)
	}
	worker, s := m.worker(c)
	if w, err := callbuf.ParseWelcome(m.expect(wire.Welcome, process)); err != nil || w.Result != 0 {
		m.t.Fatalf("%+v, %v", w, err)
	}
	return worker, s
}

// The whole life of a process.
func TestProcess(t *testing.T) {
	m := newMachine(t)
	m.begin()
	worker, servant := m.serve(1)
	m.checkHeader()
	m.send(wire.Data, 1, []byte("from the process"))
	buf := make([]byte, 100)
	if n, err := worker.Read(buf); err != nil || string(buf[:n]) != "from the process" {
		t.Fatalf("%q, %v", buf[:n], err)
	}
	worker.Write([]byte("from the worker"))
	if got := m.expect(wire.Data, 1); string(got) != "from the worker" {
		t.Fatalf("%q", got)
	}
	m.send(wire.Close, 1, nil)
	if n, err := worker.Read(buf); n != 0 || err == nil {
		t.Errorf("the worker isn't hung up on: %d, %v", n, err)
	}
	servant.end()
	m.expect(wire.Gone, 1)
	m.serve(2) // its memory is free again
}

// checkHeader checks that the segment is ready for its process.
func (m *machine) checkHeader() {
	m.t.Helper()
	f, err := os.OpenFile(m.path, os.O_RDWR, 0)
	if err != nil {
		m.t.Fatal(err)
	}
	defer f.Close()
	mem, err := callbuf.MapParts(f, segment)
	if err != nil {
		m.t.Fatal(err)
	}
	defer callbuf.UnmapParts(mem)
	if g, err := callbuf.Open(mem); err != nil || g.Layout().Geometry != geometry {
		m.t.Fatalf("the segment's header: %v", err)
	}
}

// A worker that doesn't end is killed: memory that it can still write isn't given to another.
func TestWorkerThatStays(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.begin()
	_, servant := m.serve(1)
	m.send(wire.Close, 1, nil)
	m.expect(wire.Gone, 1)
	select {
	case <-servant.gone:
	case <-time.After(soon):
		t.Error("its worker lives")
	}
}

// A message that no honest agent sends ends the session, and not the hub: the next session is served.
func TestLies(t *testing.T) {
	whole := func(at uint64) []byte { return lend(callbuf.Extent{Offset: at, Bytes: segmentBytes}) }
	asked := func(m *machine) { m.open(1); m.knock(); m.expect(wire.Need, 1) }
	for name, lie := range map[string]func(m *machine){
		"a number twice":          func(m *machine) { m.open(1); m.open(1) },
		"a lend unasked":          func(m *machine) { m.open(1); m.send(wire.Lend, 1, whole(segmentAt)) },
		"a welcome":               func(m *machine) { m.send(wire.Welcome, 1, nil) },
		"no hello":                func(m *machine) { m.send(wire.Open, 1, []byte("hello")) },
		"too much data":           func(m *machine) { m.send(wire.Data, 1, make([]byte, wire.MaxData+1)) },
		"a kind there isn't":      func(m *machine) { m.send(77, 1, nil) },
		"beyond the region":       func(m *machine) { asked(m); m.send(wire.Lend, 1, whole(regionBytes-4096)) },
		"the last page":           func(m *machine) { asked(m); m.send(wire.Lend, 1, whole(regionBytes-segmentBytes)) },
		"the control area":        func(m *machine) { asked(m); m.send(wire.Lend, 1, whole(controlAt)) },
		"too little":              func(m *machine) { asked(m); m.send(wire.Lend, 1, lend(callbuf.Extent{Offset: 0, Bytes: 4096})) },
		"crooked":                 func(m *machine) { asked(m); m.send(wire.Lend, 1, whole(segmentAt+1)) },
		"itself twice":            func(m *machine) { asked(m); m.send(wire.Lend, 1, lend(twice()...)) },
		"what another has":        func(m *machine) { m.serve(2); asked(m); m.send(wire.Lend, 1, whole(segmentAt)) },
		"more than a ring's room": func(m *machine) { m.mem[controlAt+0x140] = 200 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			m.begin()
			lie(m)
			m.dropped()
			m.begin()
			m.forgetKnocks()
			m.serve(1)
		})
	}
}

func twice() []callbuf.Extent {
	half := callbuf.Extent{Offset: segmentAt, Bytes: segmentBytes / 2}
	return []callbuf.Extent{half, half}
}

// A machine reports a lack of memory; its process gets the reason.
func TestNoRoom(t *testing.T) {
	m := newMachine(t)
	m.begin()
	m.open(1)
	m.knock()
	m.expect(wire.Need, 1)
	m.send(wire.Lend, 1, lend())
	if w, err := callbuf.ParseWelcome(m.expect(wire.Welcome, 1)); err != nil || w.Result == 0 || !strings.Contains(w.Message, "no room") {
		t.Errorf("%+v, %v", w, err)
	}
	m.expect(wire.Gone, 1)
}

// A process gets the daemon's refusal as on the host.
func TestRefused(t *testing.T) {
	m := newMachine(t)
	m.begin()
	m.open(1)
	c, err := m.daemon.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.Write(callbuf.Welcome{Version: callbuf.Version, Result: 46, Message: "full"}.Append(nil))
	if w, err := callbuf.ParseWelcome(m.expect(wire.Welcome, 1)); err != nil || w.Result != 46 || w.Message != "full" {
		t.Errorf("%+v, %v", w, err)
	}
	m.expect(wire.Gone, 1)
}

// A daemon that ends during a request refuses no process: the process ends, for its agent to let it try again.
func TestDaemonGoes(t *testing.T) {
	m := newMachine(t)
	m.begin()
	m.open(1)
	c, err := m.daemon.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	m.expect(wire.Gone, 1)
	m.open(2)
	c = m.knock()
	m.expect(wire.Need, 2)
	c.Close() // before anything is lent
	m.send(wire.Lend, 2, lend(segment...))
	m.expect(wire.Gone, 2)
	m.open(3)
	c = m.knock()
	m.expect(wire.Need, 3)
	m.send(wire.Lend, 3, lend(segment...))
	m.loan(c)
	c.Close()
	m.expect(wire.Gone, 3)
	m.serve(4)
}

// A new agent, and a new hub, each start a new session: with a new generation, and after the workers of the old one
// have ended.
func TestAnew(t *testing.T) {
	m := newMachine(t)
	m.begin()
	first := m.agent.Generation()
	_, servant := m.serve(1)
	time.AfterFunc(300*time.Millisecond, servant.end)
	m.begin()
	if second := m.agent.Generation(); second <= first {
		t.Errorf("generation %d after %d", second, first)
	}
	if servant.lives() {
		t.Error("a new session while a worker of the old one lives")
	}
	m.serve(1)
	second := m.agent.Generation()
	m.stopHub()
	m.startHub()
	m.dropped()
	m.begin()
	if third := m.agent.Generation(); third <= second {
		t.Errorf("generation %d after %d", third, second)
	}
	if !wire.Used(m.mem[regionBytes-wire.PageBytes:]) {
		t.Error("a region with a session isn't in use")
	}
	clear(m.mem[regionBytes-wire.PageBytes+wire.PointerOffset:])
	m.eventually("the hub uses nothing without a control area", func() bool { return !wire.Used(m.mem[regionBytes-wire.PageBytes:]) })
}

// A machine without its region's file is over. A region has one hub.
func TestRegionGone(t *testing.T) {
	m := newMachine(t)
	m.begin()
	if _, err := kvm.Open(m.path); err == nil || !strings.Contains(err.Error(), "has a hub already") {
		t.Errorf("a second hub: %v", err)
	}
	os.Remove(m.path)
	select {
	case err := <-m.stopped:
		if err != nil {
			t.Error(err)
		}
		m.stopped <- nil
	case <-time.After(soon):
		t.Error("the hub stays without its region")
	}
}

// A machine that truncates its region's file ends its own hub, with the reason.
func TestRegionTruncated(t *testing.T) {
	m := newMachine(t)
	m.begin()
	_, servant := m.serve(1)
	defer servant.end()
	if err := os.Truncate(m.path, 0); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-m.stopped:
		if !errors.Is(err, hub.ErrWithdrawn) {
			t.Error(err)
		}
		m.stopped <- nil
	case <-time.After(soon):
		t.Error("the hub stays without its region")
	}
}
