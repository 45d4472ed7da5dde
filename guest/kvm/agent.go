// Package kvm is the agent of a virtual machine under QEMU: it gives each CUDA
// process of the machine its segment, on the memory that the machine shares with the
// host.
//
// Who calls it: `pegasus-guest agent`, as root of the machine. Programs find it at a
// socket and speak to it as they would to the daemon's, so that libcuda.so.1 knows
// nothing of machines but that an agent may go while calls go on. The messages go on to the
// machine's hub on the host (hypervisor/kvm), through a control area in the region (callbuf/region).
//
// An agent may be killed at any instant: the next goes on where it was (resume.go), by what lies
// in the region and a record beside it.
//
// Whom it trusts: the host. Processes of the machine it keeps apart: each has a file
// of its own, which it can map and write to, and neither enlarge, cut off, nor see another's.
package kvm

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"pegasus/callbuf"
	"pegasus/callbuf/bell"
	"pegasus/callbuf/region"
)

// Agent is what an agent is made of.
type Agent struct {
	Socket string // where programs connect
	Dir    string // where the region is mounted
	Log    *slog.Logger
}

// silence is after how long without a sign of life the hub counts as gone.
const silence = 10 * time.Second

// Run serves until ctx ends.
func (a Agent) Run(ctx context.Context) error {
	lock, err := a.lock()
	if err != nil {
		return err
	}
	defer lock.Close()
	port := a.listenAtPort(ctx)
	d, err := openDevice()
	if err != nil {
		return err
	}
	events := make(chan func(), 64)
	s := &session{agent: a, port: port, sleeper: bell.NewSleeper(port, events), events: events, processes: map[uint32]*process{}}
	if err := s.resume(d); err != nil {
		a.Log.Info("beginning anew", "why", err)
		if err := s.start(d); err != nil {
			return err
		}
	}
	port.Ring()
	l, err := listen(a.Socket)
	if err != nil {
		return err
	}
	defer l.Close()
	a.Log.Info("ready", "region", d.path, "bytes", d.bytes, "socket", a.Socket)
	go s.accept(l)
	return s.run(ctx)
}

// start makes the region anew, and asks for a session.
func (s *session) start(d *device) error {
	os.Remove(s.agent.recordPath())
	if err := d.release(); err != nil {
		return err
	}
	files, err := mountFiles(d, s.agent.Dir)
	if err != nil {
		return err
	}
	area, offset, err := files.controlArea()
	if err != nil {
		return fmt.Errorf("control area: %w", err)
	}
	s.files, s.control = files, region.NewGuest(area)
	s.begin()
	return d.setPointer(&region.Pointer{Offset: offset, Boot: s.boot})
}

// listen makes the socket, which every user of the machine may use. It takes the place of one that
// an agent before has left, so that a program always finds one there, and waits.
func listen(path string) (*net.UnixListener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	making := path + ".new"
	os.Remove(making)
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: making, Net: "unixpacket"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	if err = os.Chmod(making, 0o666); err == nil {
		err = os.Rename(making, path)
	}
	if err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// session is what agent and hub have together. One goroutine, run's, has all of it;
// those of the processes hand it what is to be done as events.
type session struct {
	agent   Agent
	files   *files
	control *region.Guest
	port    *bell.Port
	sleeper *bell.Sleeper
	boot    uint64
	serving bool      // the hub has answered
	heard   time.Time // when the hub last gave a sign of life

	last      uint32 // number of a process
	processes map[uint32]*process
	outbox    []region.Message
	events    chan func()
}

// begin asks the hub for a session.
func (s *session) begin() {
	var b [8]byte
	rand.Read(b[:])
	s.boot = binary.LittleEndian.Uint64(b[:]) | 1
	s.serving = false
	s.outbox = nil
	s.heard = time.Now()
	s.control.Begin(s.boot)
	s.port.Ring()
	os.Remove(s.agent.recordPath()) // nothing to go on with before the hub answers
}

func (s *session) run(ctx context.Context) error {
	for ctx.Err() == nil {
		if s.step() {
			s.sleeper.Worked()
		} else {
			s.sleeper.Sleep(ctx, s.control, s.step)
		}
	}
	return nil
}

// step does what there is to do, and says whether there was something.
func (s *session) step() bool {
	if s.control.Beat() {
		s.heard = time.Now()
	}
	if !s.serving {
		if !s.control.Answered() {
			return false
		}
		s.serving = true
		s.save()
		s.agent.Log.Info("the host has answered", "generation", s.control.Generation())
	}
	if s.control.Over() || time.Since(s.heard) > silence {
		s.lose("the host's side of the session has gone")
		return true
	}
	sent := s.flush()
	m, ok, err := s.control.Receive()
	if err != nil {
		s.lose(err.Error())
		return true
	}
	if ok {
		s.obey(m)
	}
	return sent || ok
}

// lose ends the session: its processes lose their workers, and a new one begins, with
// those that still wait for their welcome.
func (s *session) lose(why string) {
	s.agent.Log.Warn("the session ends", "why", why, "processes", len(s.processes))
	var waiting []process
	for _, p := range s.processes {
		if p.daemon != nil {
			waiting = append(waiting, *p)
			p.daemon = nil
		}
		s.forget(p)
	}
	s.begin()
	for _, p := range waiting {
		s.open(p.daemon, p.hello, p.came)
	}
}

func (s *session) tell(m region.Message) { s.outbox = append(s.outbox, m) }

func (s *session) flush() (sent bool) {
	for len(s.outbox) > 0 && s.control.Send(s.outbox[0]) {
		s.outbox = s.outbox[1:]
		sent = true
	}
	if sent {
		s.sleeper.Notify(s.control)
	}
	return sent
}

func (s *session) accept(l *net.UnixListener) {
	for {
		c, err := l.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			s.agent.Log.Warn("accept a process", "err", err)
			time.Sleep(100 * time.Millisecond)
			continue
		}
		go s.greet(c)
	}
}

// helloTime is how long a process may take to say hello, and how long it waits for an answer.
const (
	helloTime  = 5 * time.Second
	answerTime = 10 * time.Second
)

// greet hears a process's hello.
func (s *session) greet(c *net.UnixConn) {
	c.SetReadDeadline(time.Now().Add(helloTime))
	buf := make([]byte, callbuf.HelloBytes+1)
	n, err := c.Read(buf)
	if err != nil || n == 0 {
		c.Close()
		return
	}
	hello, err := callbuf.ParseHello(buf[:n])
	if err != nil {
		refuse(c, resultSystemDriverMismatch, err.Error())
		c.Close()
		return
	}
	came := time.Now()
	s.events <- func() {
		if hello.Features&callbuf.HelloBack != 0 {
			s.back(c)
		} else {
			s.open(c, hello, came)
		}
	}
}

// What a process is told that isn't served for a reason of the agent's.
const (
	resultSystemNotReady       = 802 // CUDA_ERROR_SYSTEM_NOT_READY
	resultSystemDriverMismatch = 803 // CUDA_ERROR_SYSTEM_DRIVER_MISMATCH
	resultUnknown              = 999 // CUDA_ERROR_UNKNOWN
)

func refuse(c *net.UnixConn, result int32, why string) {
	c.SetWriteDeadline(time.Now().Add(helloTime))
	c.Write(callbuf.Welcome{Version: callbuf.Version, Result: result, Message: why}.Append(nil))
}
