// Package agent implements the agent of a virtual machine. It allocates a segment for each CUDA process of the machine,
// in memory that the machine shares with the host. The kind of memory depends on the machine (SharedMemory); guest/kvm
// and guest/xen implement it.
//
// Callers: `pegasus-guest agent`, as root of the machine. Programs connect to its socket with the daemon's protocol;
// libcuda.so.1 has no code for machines, except that an agent may end while calls continue. The agent forwards the
// messages to the machine's hub on the host, through a control area in that memory (callbuf/region).
//
// An agent may be killed at any time. The next one resumes its session (resume.go) from the region and a record beside
// it.
//
// Trust boundary: the agent trusts the host, and isolates the machine's processes from each other. Each has a file of
// its own, which it can map and write, but neither extend nor truncate, and no access to the files of others.
package agent

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"pegasus/callbuf/bell"
	"pegasus/callbuf/region"
)

// Agent is the configuration of an agent.
type Agent struct {
	Machine Machine
	Socket  string // where programs connect
	Group   string // the group with access, if the agent creates the socket; empty: all users
	Dir     string // its path plus a suffix gives the record and the lock
	Release string // the build's release
	Log     *slog.Logger
}

// silence is the time without a heartbeat after which the hub counts as gone.
const silence = 10 * time.Second

// Run serves until ctx ends. While the machine has no usable region, programs receive the reason; the region may become
// available while Run runs.
func (a Agent) Run(ctx context.Context) error {
	lock, err := a.lock()
	if err != nil {
		return err
	}
	defer lock.Close()
	fdStore, sockets := inherit()
	l, err := listen(sockets, a.Socket, a.Group)
	if err != nil {
		return err
	}
	defer l.Close()
	d := &endpoint{log: a.Log, release: a.Release, patience: hubTime, record: a.recordPath()}
	go d.accept(l)
	notify("READY=1")
	port := bell.Listen(ctx, a.Machine.OpenBell, false, func(err error) {
		if err != nil {
			a.Log.Info("nothing wakes us: we look every few milliseconds", "why", err)
		} else {
			a.Log.Info("the host wakes us")
		}
	})
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		s, err := a.prepare(port, fdStore)
		if err == nil {
			a.Log.Info("ready", "region", s.memory.Name(), "bytes", s.memory.Bytes(), "socket", a.Socket)
			notify("STATUS=Serving CUDA programs")
			d.leadTo(s)
			port.Ring() // the hub may sleep since the previous agent ended
			if err = s.run(ctx); err == nil {
				return s.memory.Leave()
			}
			d.leadTo(nil)
			s.end()
			pause = firstPause
		}
		if d.because(err.Error()) {
			a.Log.Warn("programs aren't served", "why", err)
			notify("STATUS=" + err.Error())
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil
		}
	}
}

// Bounds of the time between attempts to use the region; it doubles with each.
const (
	firstPause   = 100 * time.Millisecond
	longestPause = 2 * time.Second
)

// prepare resumes the session of the previous agent, or initializes the region and requests a new session.
func (a Agent) prepare(port *bell.Port, fdStore *FDStore) (s *session, err error) {
	g, err := a.Machine.Find(fdStore)
	if errors.Is(err, ErrNone) {
		os.Remove(a.recordPath()) // there is no session to resume
	}
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			if s != nil && s.area != nil {
				unix.Munmap(s.area) // mapped pages stay granted
			}
			g.Close()
		}
	}()
	defer region.CatchFault(&err, ErrUnplugged)()
	events := make(chan func())
	s = &session{
		agent: a, memory: g, port: port, sleeper: bell.NewSleeper(port, events),
		events: events, over: make(chan struct{}), processes: map[uint32]*process{},
	}
	err = s.resume()
	if err == nil {
		return s, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		a.Log.Info("beginning anew", "why", err)
	}
	return s, s.start()
}

// start initializes the region and requests a session.
func (s *session) start() error {
	os.Remove(s.agent.recordPath())
	area, err := s.memory.Begin()
	if err != nil {
		return err
	}
	s.area, s.control = area, region.NewGuest(area)
	s.control.SetRelease(s.agent.Release)
	s.begin()
	return s.memory.Announce(s.boot)
}

// session is the state of the connection between agent and hub. The goroutine of run owns it; the processes' goroutines
// send it their work as events.
type session struct {
	agent   Agent
	memory  SharedMemory
	area    []byte // memory of the control area
	control *region.Guest
	port    *bell.Port
	sleeper *bell.Sleeper
	boot    uint64
	serving bool      // the hub has answered
	heard   time.Time // time of the hub's last heartbeat
	looked  time.Time // time of the last step

	last      uint32 // the last process number used
	processes map[uint32]*process
	outbox    []region.Message
	events    chan func()
	over      chan struct{} // closed when no goroutine handles events any more
}

// post runs do on the session's goroutine; false: the session has ended.
func (s *session) post(do func()) bool {
	select {
	case s.events <- do:
		return true
	case <-s.over:
		return false
	}
}

// begin requests a session from the hub.
func (s *session) begin() {
	var b [8]byte
	rand.Read(b[:])
	s.boot = binary.LittleEndian.Uint64(b[:]) | 1
	s.serving = false
	s.outbox = nil
	s.heard = time.Now()
	s.control.Begin(s.boot)
	s.port.Ring()
	os.Remove(s.agent.recordPath()) // there is no session to resume before the hub answers
}

// run serves until ctx ends, or fails when the shared memory is gone.
func (s *session) run(ctx context.Context) (err error) {
	defer region.CatchFault(&err, ErrUnplugged)()
	for ctx.Err() == nil {
		if s.step() {
			s.sleeper.Worked()
		} else if err := s.memory.Gone(); err != nil {
			return err
		} else {
			s.sleeper.Sleep(ctx, s.control, s.step)
		}
	}
	return nil
}

// step handles pending work and reports whether there was any.
func (s *session) step() bool {
	now := time.Now()
	s.notice(now)
	if s.control.Beat() {
		s.heard = now
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

// longestLook is longer than the time between two steps, unless the machine was paused.
const longestLook = 3 * time.Second

// notice excludes a pause of the machine, during which its clock may have gone on, from the waiting time of its
// processes.
func (s *session) notice(now time.Time) {
	if stood := now.Sub(s.looked); !s.looked.IsZero() && stood > longestLook {
		for _, p := range s.processes {
			p.came = p.came.Add(stood)
		}
	}
	s.looked = now
}

// lose ends the session: its processes lose their workers. A new session starts with those that still wait for their
// welcome.
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

func (s *session) sendToHub(m region.Message) { s.outbox = append(s.outbox, m) }

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

// answerTime is how long a process waits for the host's answer.
const answerTime = 10 * time.Second

// end releases a session after its region is gone, without notifying its processes.
func (s *session) end() {
	close(s.over)
	for _, p := range s.processes {
		s.forget(p)
	}
	os.Remove(s.agent.recordPath())
	unix.Munmap(s.area)
	s.memory.Close()
}
