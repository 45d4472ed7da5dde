package agent

import (
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"pegasus/callbuf/region"
)

// resume resumes the session of the previous agent while that agent's programs compute. It needs the agent's record,
// its shared memory, and a hub that still serves the session; otherwise the error names the missing part.
//
// The previous agent's pending work and messages are not needed. Processes that it had not served have lost their
// connection, and are closed here; for the hub that is at worst redundant. Processes that have ended since are closed,
// too. The others reconnect by themselves.
func (s *session) resume() error {
	r, err := readRecord(s.agent.recordPath())
	if err != nil {
		return err
	}
	area, err := s.memory.Resume(r)
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

// adopt takes over a process that the previous agent has served, if it is still alive.
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

// back connects a process of the previous agent to its worker again, or reports that the worker is lost.
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

// leave closes what the previous agent had allocated for a process that did not accept it.
func (s *session) leave(newcomer *process) {
	for _, p := range s.processes {
		if p.pid == newcomer.pid && p.started == newcomer.started && p.served && p.worker == nil {
			s.close(p)
		}
	}
}
