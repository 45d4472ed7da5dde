// Package agent is the agent of a virtual machine: it gives each CUDA
// process of the machine its segment, on the memory that the machine shares with the
// host. What memory that is depends on the machine (Ground): guest/kvm and guest/xen know.
//
// Who calls it: `pegasus-guest agent`, as root of the machine. Programs find it at a
// socket and speak to it as they would to the daemon's, so that libcuda.so.1 knows
// nothing of machines but that an agent may go while calls go on. The messages go on to the
// machine's hub on the host, through a control area in that memory (callbuf/region).
//
// An agent may be killed at any instant: the next goes on where it was (resume.go), by what lies
// in the region and a record beside it.
//
// Whom it trusts: the host. Processes of the machine it keeps apart: each has a file
// of its own, which it can map and write to, and neither enlarge, cut off, nor see another's.
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

// Agent is what an agent is made of.
type Agent struct {
	Machine Machine
	Socket  string // where programs connect
	Group   string // whose members may, if the agent makes the socket; empty: everybody
	Dir     string // beside it lie the record and the lock
	Release string // which build it is
	Log     *slog.Logger
}

// silence is after how long without a sign of life the hub counts as gone.
const silence = 10 * time.Second

// Run serves until ctx ends. While the machine has no region, or one that can't be used,
// programs are told so: it may get one while it runs.
func (a Agent) Run(ctx context.Context) error {
	lock, err := a.lock()
	if err != nil {
		return err
	}
	defer lock.Close()
	shelf, sockets := inherit()
	l, err := listen(sockets, a.Socket, a.Group)
	if err != nil {
		return err
	}
	defer l.Close()
	d := &door{log: a.Log, release: a.Release, patience: hubTime, record: a.recordPath()}
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
		s, err := a.prepare(port, shelf)
		if err == nil {
			a.Log.Info("ready", "region", s.ground.Name(), "bytes", s.ground.Bytes(), "socket", a.Socket)
			notify("STATUS=Serving CUDA programs")
			d.leadTo(s)
			port.Ring() // the hub may sleep since the agent before went
			if err = s.run(ctx); err == nil {
				return s.ground.Leave()
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

// It is tried again between these whether the region can be used, the longer the rarer.
const (
	firstPause   = 100 * time.Millisecond
	longestPause = 2 * time.Second
)

// prepare goes on with the session of an agent before, or makes the region ready and asks
// the host for one.
func (a Agent) prepare(port *bell.Port, shelf *Shelf) (s *session, err error) {
	g, err := a.Machine.Find(shelf)
	if errors.Is(err, ErrNone) {
		os.Remove(a.recordPath()) // there is nothing to go on with
	}
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			if s != nil && s.area != nil {
				unix.Munmap(s.area) // pages that are mapped stay granted
			}
			g.Close()
		}
	}()
	defer unplugged(&err)()
	events := make(chan func())
	s = &session{
		agent: a, ground: g, port: port, sleeper: bell.NewSleeper(port, events),
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

// start makes the region anew, and asks for a session.
func (s *session) start() error {
	os.Remove(s.agent.recordPath())
	area, err := s.ground.Begin()
	if err != nil {
		return err
	}
	s.area, s.control = area, region.NewGuest(area)
	s.control.SetRelease(s.agent.Release)
	s.begin()
	return s.ground.Announce(s.boot)
}

// session is what agent and hub have together. One goroutine, run's, has all of it;
// those of the processes hand it what is to be done as events.
type session struct {
	agent   Agent
	ground  Ground
	area    []byte // the control area's memory
	control *region.Guest
	port    *bell.Port
	sleeper *bell.Sleeper
	boot    uint64
	serving bool      // the hub has answered
	heard   time.Time // when the hub last gave a sign of life
	looked  time.Time // when there was last looked what to do

	last      uint32 // number of a process
	processes map[uint32]*process
	outbox    []region.Message
	events    chan func()
	over      chan struct{} // closed when nobody does events any more
}

// post has the session do something; false: it is over.
func (s *session) post(do func()) bool {
	select {
	case s.events <- do:
		return true
	case <-s.over:
		return false
	}
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

// run serves until ctx ends, or the ground is gone, which is an error.
func (s *session) run(ctx context.Context) (err error) {
	defer unplugged(&err)()
	for ctx.Err() == nil {
		if s.step() {
			s.sleeper.Worked()
		} else if err := s.ground.Gone(); err != nil {
			return err
		} else {
			s.sleeper.Sleep(ctx, s.control, s.step)
		}
	}
	return nil
}

// step does what there is to do, and says whether there was something.
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

// longestLook is more than passes between two looks, unless the machine was paused.
const longestLook = 3 * time.Second

// notice has a pause of the machine, during which its clock may have gone on, not count as time that its processes waited.
func (s *session) notice(now time.Time) {
	if stood := now.Sub(s.looked); !s.looked.IsZero() && stood > longestLook {
		for _, p := range s.processes {
			p.came = p.came.Add(stood)
		}
	}
	s.looked = now
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

// answerTime is how long a process waits for the host's answer.
const answerTime = 10 * time.Second
