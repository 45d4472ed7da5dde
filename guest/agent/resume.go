package agent

import (
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"pegasus/callbuf/region"
)

// resume goes on with the session of the agent before, whose programs compute meanwhile. It
// needs that one's record, its file system, and a hub that serves the session still: else
// an error says what is missing.
//
// Of what the agent before was about to do or to tell, nothing has to be known. Processes that
// it had not served have lost their connection, and are closed here; to the hub that is
// no news at worst. Those that have ended since are closed, too. The rest come back by themselves.
func (s *session) resume() error {
	r, err := readRecord(s.agent.recordPath())
	if err != nil {
		return err
	}
	area, err := s.ground.Resume(r)
	if err != nil {
		return err
	}
	var ok bool
	s.control, ok = region.ResumeGuest(area, r.Boot, r.Generation)
	if !ok {
		unix.Munmap(area)
		return fmt.Errorf("the host serves the session %d no more", r.Generation)
	}
	s.area = area
	s.control.SetRelease(s.agent.Release)
	s.boot, s.last, s.serving, s.heard = r.Boot, r.Last, true, time.Now()
	for _, c := range r.Processes {
		s.adopt(c)
	}
	s.agent.Log.Info("going on with the session of the agent before", "generation", r.Generation, "processes", len(r.Processes))
	return nil
}

// adopt takes over a process that an agent before has served, if it is there.
func (s *session) adopt(c Client) {
	p := &process{number: c.Number, pid: c.PID, started: c.Started, at: c.At, served: c.Served}
	s.processes[p.number] = p
	life, started, err := openProcess(c.PID)
	if err == nil {
		p.life = life
	}
	if err != nil || started != c.Started || !c.Served {
		s.close(p)
		return
	}
	go s.watch(p, life)
}

// back makes a connection the one of a process that was served by an agent before, or
// tells it that its worker has gone.
func (s *session) back(c *net.UnixConn) {
	pid := pidOf(c)
	life, started, err := openProcess(pid)
	if err == nil {
		life.Close()
	}
	for _, p := range s.processes {
		if err != nil || p.pid != pid || p.started != started || !p.served || p.closing || p.worker != nil {
			continue
		}
		p.worker = c
		c.SetReadDeadline(time.Time{})
		go s.listenTo(p, c, s.control.HubRouses())
		return
	}
	dismiss(c)
}

// leave closes what a process has of an agent before and didn't take.
func (s *session) leave(newcomer *process) {
	for _, p := range s.processes {
		if p.pid == newcomer.pid && p.started == newcomer.started && p.served && p.worker == nil {
			s.close(p)
		}
	}
}
