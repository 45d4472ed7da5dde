package tests

import (
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"pegasus/callbuf"
	"pegasus/cuda"
)

// host simulates daemon and worker for any number of guest processes. The fields are set before the first guest
// connects.
type host struct {
	geometry callbuf.Geometry
	// welcome and mapped may change the messages of the rendezvous.
	welcome func(*callbuf.Welcome)
	mapped  func(callbuf.MapRequest) callbuf.MapReply
	// hello reports whether to answer a Hello with these features, or to hang up.
	hello func(features uint64) bool
	// came is called with the process ID of each guest that sends a hello.
	came func(pid int)
	// before is called with every packet; a result other than proceed replaces the packet's execution.
	before func(g *guest, c cuda.Call, payload []byte) verdict
	spin   time.Duration
	// features of the segment, and its offset in its file.
	features uint64
	at       uint64
	// backs receives connections of guests that reconnect; if it is nil they are rejected.
	backs chan *os.File

	path string
	log  struct {
		sync.Mutex
		ops []cuda.Op
	}
	stop   atomic.Bool
	rings  atomic.Int32
	guests sync.WaitGroup
}

// cutOff as a result of MapReply makes the host hang up on the guest.
const cutOff = -1

type verdict int

const (
	proceed verdict = iota
	die             // hang up on the guest, as a killed worker does
	ignore
	orphan // hang up, as a killed agent does, and wait for the guest to reconnect
)

// start listens until the test ends.
func (h *host) start(t *testing.T) *host {
	t.Helper()
	if h.geometry == (callbuf.Geometry{}) {
		h.geometry = callbuf.DefaultGeometry()
	}
	h.path = filepath.Join(t.TempDir(), "domain.sock")
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: h.path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			c, err := l.AcceptUnix()
			if err != nil {
				return
			}
			h.guests.Add(1)
			go func() {
				defer h.guests.Done()
				if err := h.meet(c); err != nil && !h.stop.Load() {
					t.Errorf("host: %v", err)
				}
			}()
		}
	}()
	t.Cleanup(func() {
		h.stop.Store(true)
		l.Close()
		h.guests.Wait()
	})
	return h
}

// seen returns how many packets of an operation have arrived.
func (h *host) seen(op cuda.Op) (n int) {
	h.log.Lock()
	defer h.log.Unlock()
	for _, o := range h.log.ops {
		if o == op {
			n++
		}
	}
	return n
}

// meet performs the rendezvous and then serves the guest until it ends.
func (h *host) meet(c *net.UnixConn) error {
	defer c.Close()
	var b [callbuf.HelloBytes + 1]byte
	n, err := c.Read(b[:])
	if err != nil {
		return err
	}
	hello, err := callbuf.ParseHello(b[:n])
	if err != nil {
		return err
	}
	if h.came != nil {
		cred, err := peer(c)
		if err != nil {
			return err
		}
		h.came(int(cred.Pid))
	}
	if h.hello != nil && !h.hello(hello.Features) {
		return nil
	}
	if hello.Features&callbuf.HelloBack != 0 {
		return h.back(c)
	}
	layout, err := h.geometry.Layout()
	if err != nil {
		return err
	}
	whole := layout
	whole.SegmentBytes += 2 * h.at // other data before and behind it
	f, err := callbuf.NewFile(whole)
	if err != nil {
		return err
	}
	defer f.Close()
	mem, err := callbuf.MapParts(f, callbuf.Extents{{Offset: h.at, Bytes: layout.SegmentBytes}})
	if err != nil {
		return err
	}
	defer callbuf.UnmapParts(mem)
	ch, err := callbuf.Format(mem, layout, 7, h.features)
	if err != nil {
		return err
	}
	ch.SetSpin(h.spin)
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	mine := os.NewFile(uintptr(pair[0]), "worker")
	defer mine.Close()
	w := callbuf.Welcome{
		Version: callbuf.Version, WorkerPID: uint32(os.Getpid()), Generation: 7, SegmentBytes: layout.SegmentBytes,
		ArenaBases: callbuf.ArenaBases, DeviceBases: callbuf.DeviceBases(3), DeviceBytes: callbuf.DeviceSliceBytes,
	}
	if h.at != 0 {
		w.Features, w.SegmentOffset = hello.Features&callbuf.HelloPlaced, h.at
	}
	if h.welcome != nil {
		h.welcome(&w)
	}
	var rights []byte
	if w.Result == 0 {
		rights = unix.UnixRights(int(f.Fd()), pair[1])
	}
	_, _, err = c.WriteMsgUnix(w.Append(nil), rights, nil)
	unix.Close(pair[1])
	if err != nil || w.Result != 0 {
		return err
	}
	g := &guest{host: h, ch: ch, mem: map[uint64][]byte{}, arrays: map[uint64]*array{}, events: map[uint64]bool{}}
	if !h.agree(mine, &w, g) {
		return nil // the guest has given up
	}
	if h.features&callbuf.FeatureBell != 0 {
		go g.hear(mine)
	}
	g.serve(mine)
	return nil
}

func peer(c *net.UnixConn) (cred *unix.Ucred, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	if e := raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); e != nil {
		return nil, e
	}
	return cred, err
}

// hear counts doorbell messages until the guest hangs up.
func (g *guest) hear(worker *os.File) {
	var b [16]byte
	for {
		if n, err := worker.Read(b[:]); n == 0 || err != nil {
			return
		}
		g.host.rings.Add(1)
		g.ch.Rung()
	}
}

// back acts as an agent to which a guest reconnects.
func (h *host) back(c *net.UnixConn) error {
	if h.backs == nil {
		_, err := c.Write(callbuf.Welcome{Version: callbuf.Version, Result: 999, Message: "gone"}.Append(nil))
		return err
	}
	f, err := c.File()
	if err == nil {
		h.backs <- f
	}
	return err
}

func (h *host) agree(worker *os.File, w *callbuf.Welcome, g *guest) bool {
	for {
		var b [callbuf.MapBytes + 1]byte
		n, err := worker.Read(b[:])
		if err != nil || n == 0 {
			return false
		}
		ask, err := callbuf.ParseMap(b[:n])
		if err != nil {
			return false
		}
		reply := callbuf.MapReply{ArenaOK: ask.Arena != callbuf.NoWindow, DevOK: ask.Device != callbuf.NoWindow}
		if h.mapped != nil {
			reply = h.mapped(ask)
		}
		if reply.Result == cutOff {
			return false
		}
		worker.Write(reply.Append(nil))
		if reply.Result != 0 {
			return false
		}
		arena := reply.ArenaOK || ask.Arena == callbuf.NoWindow
		if arena && (reply.DevOK || ask.Device == callbuf.NoWindow) {
			g.next = 0x7000_0000_0000
			if ask.Device != callbuf.NoWindow {
				g.next = w.DeviceBases[ask.Device]
			}
			if ask.Arena != callbuf.NoWindow {
				g.arena = w.ArenaBases[ask.Arena]
			}
			return true
		}
	}
}

// serve executes packets until the guest or the host hangs up.
func (g *guest) serve(worker *os.File) {
	var p callbuf.Packet
	for !g.host.stop.Load() {
		select {
		case worker = <-g.host.backs:
			defer worker.Close()
		default:
		}
		ok, err := g.ch.Next(&p)
		if err != nil {
			return
		}
		if !ok {
			if worker != nil && hungUp(worker) {
				return
			}
			g.ch.Park(5 * time.Millisecond)
			continue
		}
		c := cuda.Call{
			Op: cuda.Op(p.Op), Reply: p.Flags&callbuf.FlagReply != 0, ReplySlot: p.ReplySlot, ReplyTag: p.ReplyTag,
			Context: p.Context, Stream: p.Stream,
		}
		g.host.log.Lock()
		g.host.log.ops = append(g.host.log.ops, c.Op)
		g.host.log.Unlock()
		if g.host.before != nil {
			switch g.host.before(g, c, p.Payload) {
			case die:
				return
			case ignore:
				continue
			case orphan:
				worker.Close()
				worker = nil
			}
		}
		data, r, ok := cuda.Dispatch(g, c, p.Payload, nil)
		if !ok {
			g.ch.Poison(int32(cuda.ErrorLaunchFailed))
			return
		}
		if c.Reply && r != cuda.Deferred {
			g.ch.Reply(c.ReplySlot, c.ReplyTag, int32(r), data)
		}
	}
}

func hungUp(f *os.File) bool {
	p := []unix.PollFd{{Fd: int32(f.Fd()), Events: unix.POLLIN}}
	n, err := unix.Poll(p, 0)
	return err == nil && n > 0 && p[0].Revents&(unix.POLLHUP|unix.POLLERR) != 0
}
