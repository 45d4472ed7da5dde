package agent

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"pegasus/callbuf"
	"pegasus/callbuf/bell"
	"pegasus/callbuf/region"
)

// process is a process of the machine that has said hello. It is of the session's goroutine.
type process struct {
	number  uint32
	pid     uint32
	started uint64   // when it did, see parseStart
	life    *os.File // by which its end is known; nil if it can't be
	hello   callbuf.Hello
	came    time.Time
	daemon  *net.UnixConn   // where it waits for its welcome; nil once it has it
	segment *Piece          // until it has it
	at      *callbuf.Extent // where that lies, if it has to be written down
	served  bool            // it has its segment
	closing bool            // the hub has been told that it has gone
	worker  *net.UnixConn   // our end of what it takes for the socket of its worker; nil while it has none
}

// hubTime is how long the hub may be away when a process comes.
const hubTime = 5 * time.Second

// hostAway is what programs are told while the hub is.
const hostAway = "the host doesn't answer: is pegasusd running there, and this machine attached to it?"

// crowded is what programs are told while there are as many as a hub serves.
var crowded = fmt.Sprintf("%d CUDA processes of this machine are served, wait or end: there can't be more", region.MaxProcesses)

// open begins to serve a process that came some time ago.
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
	if s.ground.Shared() && hello.Features&callbuf.HelloPlaced == 0 {
		refuse(c, resultSystemDriverMismatch, "this program's libcuda.so.1 is too old for a machine with ivshmem")
		c.Close()
		return
	}
	if len(s.processes) >= region.MaxProcesses { // for more the hub would end the session, of all users
		refuse(c, resultSystemNotReady, crowded)
		c.Close()
		return
	}
	pid := pidOf(c)
	life, started, err := openProcess(pid)
	if errors.Is(err, unix.ESRCH) { // it has ended, and nobody would hear of that again
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
	if most := s.ground.MostArena(); most > 0 && (hello.MostBytes == 0 || hello.MostBytes > most) {
		hello.MostBytes = most
	}
	hello.Features &^= callbuf.HelloAfresh | callbuf.HelloPlaced // those are for us
	s.processes[p.number] = p
	s.save()
	s.tell(region.Message{Kind: region.Open, Process: p.number, Body: region.OpenBody(hello, p.pid)})
	s.limit(p, answerTime)
}

// moment is what of a process's patience a pause of the machine costs at most, whose clock may go on meanwhile, as under Xen.
const moment = time.Second

// limit refuses a process that waits still when so much time more has passed, moment after moment.
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

// reopen tries again to serve a process that waits.
func (s *session) reopen(c *net.UnixConn, hello callbuf.Hello, came time.Time) {
	if !s.post(func() { s.open(c, hello, came) }) {
		refuse(c, resultSystemNotReady, ErrUnplugged.Error())
		c.Close()
	}
}

// refuse tells a process that waits, and the hub, that nothing comes of it. Its number and
// its file are kept until the hub says that nobody uses them.
func (s *session) refuse(p *process, why string) {
	if p.daemon != nil {
		refuse(p.daemon, resultSystemNotReady, why)
		p.daemon.Close()
		p.daemon = nil
	}
	s.close(p)
}

// close tells the hub, once, that a process has gone, unless it hasn't heard of it yet.
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
	s.tell(region.Message{Kind: region.Close, Process: p.number})
}

// watch closes a process when it has ended.
func (s *session) watch(p *process, life *os.File) {
	awaitEnd(life)
	s.post(func() { s.close(p) })
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
		p.segment.Close()
	}
	if p.life != nil {
		p.life.Close()
	}
	if err := s.ground.Remove(pieceName(s.boot, p.number)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.agent.Log.Warn("remove a call buffer", "err", err)
	}
	delete(s.processes, p.number)
}

// again forgets a process that waits for its welcome, and opens it anew.
func (s *session) again(p *process) {
	c := p.daemon
	p.daemon = nil
	s.forget(p)
	s.open(c, p.hello, p.came)
}

// pieceName is the name of a process's segment.
func pieceName(boot uint64, number uint32) string { return fmt.Sprintf("%x-%d", boot, number) }

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
			offer(p.worker, m.Body)
		}
	case region.Gone:
		if p.daemon != nil && !p.closing && time.Since(p.came) < hubTime { // the host lost patience while this machine was paused
			s.again(p)
		} else {
			s.forget(p)
		}
		s.save()
	}
}

// offer says something to a process. It never waits: what a process doesn't take that doesn't listen is lost, and
// however slow this machine is, one that listens hears it.
func offer(c *net.UnixConn, said []byte) {
	if raw, err := c.SyscallConn(); err == nil {
		raw.Write(func(fd uintptr) bool {
			unix.Write(int(fd), said)
			return true
		})
	}
}

// lend makes a process's segment and tells the hub where it lies.
func (s *session) lend(p *process, body []byte) {
	if p.closing {
		return
	}
	bytes, err := region.ParseNeed(body)
	if err == nil && p.segment == nil {
		err = s.makeSegment(p, bytes)
	}
	where := s.ground.NoRoom()
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
	s.tell(where)
}

// makeSegment makes a process's segment. Where it lies is written down before the hub hears of it,
// unless the file system knows.
func (s *session) makeSegment(p *process, bytes uint64) (err error) {
	if p.segment, err = s.ground.Create(pieceName(s.boot, p.number), bytes); err != nil {
		p.segment = nil
		return err
	}
	if p.segment.Part != nil {
		p.at = p.segment.Part
		s.save()
	}
	return nil
}

// welcome hands a process its segment and the end of a socket that is as its worker's.
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
		s.agent.Log.Warn("welcome a process", "pid", p.pid, "err", err)
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

// ringBytes is how long a message is that says nothing but that there is a packet.
const ringBytes = 1

var errTalk = errors.New("the process says what is too long to be passed on")

// listenTo passes on what a process says to its worker, until it hangs up. What only rings goes
// straight into the port, if that is enough for the hub.
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
		if p.worker == c { // it has not come back by another
			s.close(p)
		}
	})
}

// maxUnsent is how much of what a process says to its worker waits for room in the ring: an honest
// one says where its memory lies, and then rings, which need not be heard twice.
const maxUnsent = 16

// pass tells a worker what its process says, unless that has been closed meanwhile or says
// more than is taken.
func (s *session) pass(p *process, data []byte) {
	if s.processes[p.number] == p && !p.closing && s.unsent(p) < maxUnsent {
		s.tell(region.Message{Kind: region.Data, Process: p.number, Body: data})
	}
}

// unsent is how much of what a process said waits.
func (s *session) unsent(p *process) (n int) {
	for _, m := range s.outbox {
		if m.Kind == region.Data && m.Process == p.number {
			n++
		}
	}
	return n
}
