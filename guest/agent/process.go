package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"pegasus/callbuf"
	"pegasus/callbuf/bell"
	"pegasus/callbuf/region"
)

// process is a process of the machine that has sent a hello. The session's goroutine owns it.
type process struct {
	number  uint32
	pid     uint32
	started uint64   // its start time, see parseStart
	life    *os.File // pidfd that reports its end; nil if it can't be opened
	hello   callbuf.Hello
	came    time.Time
	daemon  *net.UnixConn   // on which it waits for its welcome; nil once it is sent
	segment *Allocation     // open until the process has received it
	at      *callbuf.Extent // location of the segment, if the record has to contain it
	served  bool            // its segment was sent
	closing bool            // the hub has been sent a Close for it
	worker  *net.UnixConn   // the agent's end of the socket pair that stands for its worker's socket; nil without one
}

// hubTime is how long a new process waits for an unresponsive hub.
const hubTime = 5 * time.Second

// hostAway is the error that programs receive while the hub does not respond.
const hostAway = "the host doesn't answer: is pegasusd running there, and this machine attached to it?"

// crowded is the error that programs receive while the hub serves its largest number of processes.
var crowded = fmt.Sprintf("%d CUDA processes of this machine are served, wait or end: there can't be more", region.MaxProcesses)

// open starts to serve a process that connected at the time came.
func (s *session) open(c *net.UnixConn, hello callbuf.Hello, came time.Time) {
	if !s.serving && time.Since(came) < hubTime {
		time.AfterFunc(50*time.Millisecond, func() { s.reopen(c, hello, came) })
		return
	}
	if !s.serving {
		refuse(c, resultSystemNotReady, hostAway)
		c.Close()
		return
	}
	if s.memory.Shared() && hello.Features&callbuf.HelloPlaced == 0 {
		refuse(c, resultSystemDriverMismatch, "this program's libcuda.so.1 is too old for a machine with ivshmem")
		c.Close()
		return
	}
	if len(s.processes) >= region.MaxProcesses { // with more the hub would end the session, for all users
		refuse(c, resultSystemNotReady, crowded)
		c.Close()
		return
	}
	pid := pidOf(c)
	life, started, err := openProcess(pid)
	if errors.Is(err, unix.ESRCH) { // it has ended, and no later event would report that
		c.Close()
		return
	}
	s.last++
	p := &process{number: s.last, pid: pid, life: life, started: started, hello: hello, came: came, daemon: c}
	if err == nil {
		go s.watch(p, p.life)
	}
	if hello.Features&callbuf.HelloAfresh != 0 {
		s.leave(p)
	}
	if most := s.memory.MostArena(); most > 0 && (hello.MostBytes == 0 || hello.MostBytes > most) {
		hello.MostBytes = most
	}
	hello.Features &^= callbuf.HelloAfresh | callbuf.HelloPlaced // features of the agent, not of the host
	s.processes[p.number] = p
	s.save()
	s.sendToHub(region.Message{Kind: region.Open, Process: p.number, Body: region.OpenBody(hello, p.pid)})
	s.limit(p, answerTime)
}

// moment is the longest part of a process's patience that a pause of the machine can use up: its clock may go on
// meanwhile, as under Xen.
const moment = time.Second

// limit rejects a process that still waits after the time left, counted in steps of moment.
func (s *session) limit(p *process, left time.Duration) {
	time.AfterFunc(min(left, moment), func() {
		s.post(func() {
			switch {
			case p.daemon == nil:
			case left > moment:
				s.limit(p, left-moment)
			default:
				s.refuse(p, "the host took too long to answer")
			}
		})
	})
}

// reopen retries open for a waiting process.
func (s *session) reopen(c *net.UnixConn, hello callbuf.Hello, came time.Time) {
	if !s.post(func() { s.open(c, hello, came) }) {
		refuse(c, resultSystemNotReady, ErrUnplugged.Error())
		c.Close()
	}
}

// refuse rejects a waiting process and closes it on the hub. Its number and file stay in use until the hub reports that
// it has released them.
func (s *session) refuse(p *process, why string) {
	if p.daemon != nil {
		refuse(p.daemon, resultSystemNotReady, why)
		p.daemon.Close()
		p.daemon = nil
	}
	s.close(p)
}

// close sends the hub one Close for a process; if the Open is still queued, it drops the process and the Open instead.
func (s *session) close(p *process) {
	if s.processes[p.number] != p || p.closing {
		return
	}
	p.closing = true
	unheard := func(m region.Message) bool { return m.Kind == region.Open && m.Process == p.number }
	if i := slices.IndexFunc(s.outbox, unheard); i >= 0 {
		s.outbox = slices.Delete(s.outbox, i, i+1)
		s.forget(p)
		s.save()
		return
	}
	s.sendToHub(region.Message{Kind: region.Close, Process: p.number})
}

// watch closes a process when it has ended.
func (s *session) watch(p *process, life *os.File) {
	awaitEnd(life)
	s.post(func() { s.close(p) })
}

// forget releases all of the agent's resources of a process.
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
		p.segment.Close()
	}
	if p.life != nil {
		p.life.Close()
	}
	if err := s.memory.Remove(allocationName(s.boot, p.number)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.agent.Log.Warn("remove a call buffer", "err", err)
	}
	delete(s.processes, p.number)
}

// again drops a process that waits for its welcome, and opens it again.
func (s *session) again(p *process) {
	c := p.daemon
	p.daemon = nil
	s.forget(p)
	s.open(c, p.hello, p.came)
}

// allocationName returns the name of a process's segment.
func allocationName(boot uint64, number uint32) string { return fmt.Sprintf("%x-%d", boot, number) }

// obey handles a message from the hub.
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
			offer(p.worker, m.Body)
		}
	case region.Gone:
		if p.daemon != nil && !p.closing && time.Since(p.came) < hubTime { // the host timed out while this machine was paused
			s.again(p)
		} else {
			s.forget(p)
		}
		s.save()
	}
}

// offer sends data to a process without blocking. Data are lost if the process does not read its socket; a process that
// reads receives them however slow this machine is.
func offer(c *net.UnixConn, said []byte) {
	if raw, err := c.SyscallConn(); err == nil {
		raw.Write(func(fd uintptr) bool {
			unix.Write(int(fd), said)
			return true
		})
	}
}

// lend allocates a process's segment and sends its location to the hub.
func (s *session) lend(p *process, body []byte) {
	if p.closing {
		return
	}
	bytes, err := region.ParseNeed(body)
	if err == nil && p.segment == nil {
		err = s.makeSegment(p, bytes)
	}
	where := s.memory.NoRoom()
	if err == nil {
		where = p.segment.Where
	} else {
		s.agent.Log.Warn("no call buffer for a process", "pid", p.pid, "err", err)
	}
	if errors.As(err, new(*Obstacle)) {
		s.refuse(p, err.Error())
		return
	}
	where.Process = p.number
	s.sendToHub(where)
}

// makeSegment allocates a process's segment. It records the location before the hub receives it, unless the file system
// keeps it.
func (s *session) makeSegment(p *process, bytes uint64) (err error) {
	if p.segment, err = s.memory.Create(allocationName(s.boot, p.number), bytes); err != nil {
		p.segment = nil
		return err
	}
	if p.segment.Part != nil {
		p.at = p.segment.Part
		s.save()
	}
	return nil
}

// welcome sends a process its segment and one end of a socket pair that stands for its worker's socket.
func (s *session) welcome(p *process, body []byte) {
	if p.daemon == nil || p.closing {
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
		level := slog.LevelWarn
		if errors.Is(err, unix.EPIPE) { // it has ended; a line for each of many such processes would delay others on a slow console
			level = slog.LevelDebug
		}
		s.agent.Log.Log(context.Background(), level, "welcome a process", "pid", p.pid, "err", err)
		s.close(p)
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
	p.served = true
	s.save()
	if p.at != nil {
		w.Features, w.SegmentOffset = w.Features|callbuf.HelloPlaced, p.at.Offset
	}
	p.daemon.SetWriteDeadline(time.Now().Add(helloTime))
	if _, _, err := p.daemon.WriteMsgUnix(w.Append(nil), unix.UnixRights(int(p.segment.Fd()), fds[1]), nil); err != nil {
		return err
	}
	p.segment.Close()
	p.segment = nil
	go s.listenTo(p, p.worker, s.control.HubRouses())
	return nil
}

// ringBytes is the length of a message that only reports a new packet.
const ringBytes = 1

var errTalk = errors.New("the process says what is too long to be passed on")

// listenTo forwards a process's messages to its worker until the socket closes. Plain doorbell messages go straight
// into the port, if the hub supports that.
func (s *session) listenTo(p *process, c *net.UnixConn, hubRouses bool) {
	raw, err := c.SyscallConn()
	for buf := make([]byte, region.MaxData+1); err == nil; {
		var n int
		n, err = bell.Read(raw, buf)
		switch {
		case err != nil:
		case n > region.MaxData:
			err = errTalk
		case n == ringBytes && hubRouses && s.port.Live():
			s.port.Ring()
		default:
			data := bytes.Clone(buf[:n])
			if !s.post(func() { s.pass(p, data) }) {
				return
			}
		}
	}
	s.post(func() {
		if p.worker == c { // it has not reconnected
			s.close(p)
		}
	})
}

// maxUnsent is the largest number of a process's messages that wait for room in the ring. A correct process sends one
// map request and then doorbell messages, of which duplicates may be dropped.
const maxUnsent = 16

// pass forwards a message of a process to its worker, unless the process is closed or has too many unsent messages.
func (s *session) pass(p *process, data []byte) {
	if s.processes[p.number] == p && !p.closing && s.unsent(p) < maxUnsent {
		s.sendToHub(region.Message{Kind: region.Data, Process: p.number, Body: data})
	}
}

// unsent returns the number of a process's messages in the outbox.
func (s *session) unsent(p *process) (n int) {
	for _, m := range s.outbox {
		if m.Kind == region.Data && m.Process == p.number {
			n++
		}
	}
	return n
}
