package kvm

import (
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"pegasus/callbuf"
	"pegasus/callbuf/region"
)

// process is a process of the machine that has said hello. It is of the session's goroutine.
type process struct {
	number  uint32
	pid     uint32
	hello   callbuf.Hello
	came    time.Time
	daemon  *net.UnixConn // where it waits for its welcome; nil once it has it
	segment *file         // nil before it has one
	worker  *net.UnixConn // our end of what it takes for the socket of its worker
}

// hubTime is how long the hub may be away when a process comes.
const hubTime = 5 * time.Second

// open begins to serve a process that came some time ago.
func (s *session) open(c *net.UnixConn, hello callbuf.Hello, came time.Time) {
	if !s.serving && time.Since(came) < hubTime {
		time.AfterFunc(50*time.Millisecond, func() { s.events <- func() { s.open(c, hello, came) } })
		return
	}
	if !s.serving {
		refuse(c, resultSystemNotReady, "the host doesn't answer: is pegasusd running there, and this machine attached to it?")
		c.Close()
		return
	}
	s.last++
	p := &process{number: s.last, pid: pidOf(c), hello: hello, came: came, daemon: c}
	s.processes[p.number] = p
	s.tell(region.Message{Kind: region.Open, Process: p.number, Body: region.OpenBody(hello, p.pid)})
	time.AfterFunc(answerTime, func() {
		s.events <- func() {
			if p.daemon != nil {
				s.refuse(p, "the host took too long to answer")
			}
		}
	})
}

func pidOf(c *net.UnixConn) (pid uint32) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0
	}
	raw.Control(func(fd uintptr) {
		if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = uint32(cred.Pid)
		}
	})
	return pid
}

// refuse tells a process that waits, and the hub, that nothing comes of it. Its number and
// its file are kept until the hub says that nobody uses them.
func (s *session) refuse(p *process, why string) {
	if p.daemon != nil {
		refuse(p.daemon, resultSystemNotReady, why)
		p.daemon.Close()
		p.daemon = nil
	}
	s.tell(region.Message{Kind: region.Close, Process: p.number})
}

// forget ends what the agent has of a process.
func (s *session) forget(p *process) {
	if p.daemon != nil {
		refuse(p.daemon, resultSystemNotReady, "the host doesn't serve it")
		p.daemon.Close()
		p.daemon = nil
	}
	if p.worker != nil {
		p.worker.Close()
	}
	if p.segment != nil {
		if err := p.segment.discard(); err != nil {
			s.agent.Log.Warn("remove a call buffer", "err", err)
		}
	}
	delete(s.processes, p.number)
}

// obey carries out what the hub says.
func (s *session) obey(m region.Message) {
	p := s.processes[m.Process]
	if p == nil {
		return
	}
	switch m.Kind {
	case region.Need:
		s.lend(p, m.Body)
	case region.Welcome:
		s.welcome(p, m.Body)
	case region.Data:
		if p.worker != nil {
			p.worker.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
			p.worker.Write(m.Body)
		}
	case region.Gone:
		s.forget(p)
	}
}

// lend makes a process's segment and tells the hub where it lies.
func (s *session) lend(p *process, body []byte) {
	bytes, err := region.ParseNeed(body)
	if err == nil && p.segment == nil {
		p.segment, err = s.files.create(fmt.Sprintf("%x-%d", s.boot, p.number), bytes)
	}
	var where []byte
	if err == nil {
		where, err = region.LendBody(p.segment.parts)
	}
	if err != nil {
		s.agent.Log.Warn("no call buffer for a process", "pid", p.pid, "err", err)
		where, _ = region.LendBody(nil)
	}
	s.tell(region.Message{Kind: region.Lend, Process: p.number, Body: where})
}

// welcome hands a process its segment and the end of a socket that is as its worker's.
func (s *session) welcome(p *process, body []byte) {
	if p.daemon == nil {
		return
	}
	w, err := callbuf.ParseWelcome(body)
	if err == nil && w.Result == 0 && p.segment == nil {
		err = fmt.Errorf("a welcome without a call buffer")
	}
	if err != nil {
		s.refuse(p, err.Error())
		return
	}
	if w.Result == 0 {
		err = s.connect(p, w)
	} else {
		p.daemon.SetWriteDeadline(time.Now().Add(helloTime))
		_, err = p.daemon.Write(body)
	}
	p.daemon.Close()
	p.daemon = nil
	if err != nil {
		s.agent.Log.Warn("welcome a process", "pid", p.pid, "err", err)
		s.tell(region.Message{Kind: region.Close, Process: p.number})
	}
}

func (s *session) connect(p *process, w callbuf.Welcome) error {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	theirs := os.NewFile(uintptr(fds[1]), "worker")
	defer theirs.Close()
	ours := os.NewFile(uintptr(fds[0]), "process")
	defer ours.Close()
	c, err := net.FileConn(ours)
	if err != nil {
		return err
	}
	p.worker = c.(*net.UnixConn)
	p.daemon.SetWriteDeadline(time.Now().Add(helloTime))
	if _, _, err := p.daemon.WriteMsgUnix(w.Append(nil), unix.UnixRights(int(p.segment.Fd()), fds[1]), nil); err != nil {
		return err
	}
	go s.listenTo(p, p.worker)
	return nil
}

// listenTo passes on what a process says to its worker, until it hangs up.
func (s *session) listenTo(p *process, c *net.UnixConn) {
	for {
		buf := make([]byte, region.MaxData+1)
		n, err := c.Read(buf)
		if err != nil || n == 0 || n > region.MaxData {
			break
		}
		s.events <- func() { s.tellOf(p, region.Data, buf[:n]) }
	}
	s.events <- func() { s.tellOf(p, region.Close, nil) }
}

// tellOf tells the hub something of a process, unless that has been forgotten meanwhile.
func (s *session) tellOf(p *process, k region.Kind, body []byte) {
	if s.processes[p.number] == p {
		s.tell(region.Message{Kind: k, Process: p.number, Body: body})
	}
}
