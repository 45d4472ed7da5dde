package hub

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"pegasus/callbuf"
	wire "pegasus/callbuf/region"
	"pegasus/hypervisor"
)

// process is a process of the machine. Its goroutine communicates with daemon and worker. mu guards worker.
type process struct {
	number uint32
	pid    uint32 // in the machine, for messages
	hello  callbuf.Hello
	end    context.CancelFunc
	lent   chan lent // its segment, once, or an error

	// Owned by the session's goroutine.
	asked    bool           // the request for the segment was sent to the agent
	layout   callbuf.Layout // of the segment
	features uint64         // of the segment beside callbuf.FeatureApart
	header   []byte         // of the segment; nil before it is lent

	mu     sync.Mutex
	worker *net.UnixConn // nil before there is one
}

// lent is a segment with its description for the daemon, or an error.
type lent struct {
	Segment
	loan hypervisor.Loan
	err  error
}

// errAway reports that the process, or the machine's session, has ended.
var errAway = errors.New("the process has gone")

// daemonTime is how long a daemon may be away, and answerTime how long it may take to answer; lendTime is how long
// the machine may take to provide memory, for which the daemon waits a little longer.
const (
	daemonTime = 5 * time.Second
	answerTime = 30 * time.Second
	lendTime   = 20 * time.Second
)

// errPaused reports that the machine didn't provide the requested memory. It may be paused: its process isn't
// refused, but ended, and tries again when the machine resumes.
var errPaused = errors.New("the machine took too long to lend memory: is it paused?")

// errCutOff reports that the daemon ended during the request. The process tries again, too, with the next daemon.
var errCutOff = errors.New("the daemon ended during a request")

// answered distinguishes a daemon that has ended from one with an invalid answer.
func answered(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE) {
		return errCutOff
	}
	return fmt.Errorf("the daemon gave no answer: %w", err)
}

// start starts to serve a process.
func (s *session) start(number uint32, hello callbuf.Hello, pid uint32) *process {
	ctx, cancel := context.WithCancel(context.Background())
	p := &process{number: number, pid: pid, hello: hello, end: cancel, lent: make(chan lent, 1)}
	go func() {
		err := p.serve(ctx, s)
		s.events <- func() { s.finish(p, err) }
	}()
	return p
}

// finish removes a process, which nothing on the host uses any more.
func (s *session) finish(p *process, err error) {
	p.end()
	if err != nil && !errors.Is(err, errAway) {
		s.complain(p, err)
	}
	delete(s.processes, p.number)
	if p.header != nil {
		callbuf.Abandon(p.header)
	}
	s.hub.Memory.TakeBack(p.number)
	s.sendToAgent(wire.Message{Kind: wire.Gone, Process: p.number})
}

// complainEvery is the shortest interval between log lines about processes that aren't served: a machine can cause
// hundreds of failures each second.
const complainEvery = time.Second

func (s *session) complain(p *process, err error) {
	if time.Since(s.complained) < complainEvery {
		s.unsaid++
		return
	}
	s.hub.Log.Warn("a process of the machine isn't served", "pid", p.pid, "err", err, "others", s.unsaid)
	s.complained, s.unsaid = time.Now(), 0
}

// hangUp ends a process's session with its worker.
func (p *process) hangUp() {
	p.end()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.worker != nil {
		p.worker.CloseRead()
		p.worker.CloseWrite()
	}
}

// pass forwards the process's message to the worker, unless the worker has so many unread that this can only be
// another ring.
func (p *process) pass(data []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.worker == nil {
		return
	}
	if raw, err := p.worker.SyscallConn(); err == nil {
		raw.Write(func(fd uintptr) bool {
			unix.SendmsgN(int(fd), data, nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
			return true
		})
	}
}

// serve does all work for one process, and returns when the process and its worker have ended.
func (p *process) serve(ctx context.Context, s *session) error {
	welcome, worker, err := p.enter(ctx, s)
	if err != nil {
		if !errors.Is(err, errAway) && !errors.Is(err, errPaused) && !errors.Is(err, errCutOff) {
			p.refuse(s, err)
		}
		return err
	}
	if worker == nil { // refused; the daemon's log has the reason
		s.events <- func() { s.sendToAgent(wire.Message{Kind: wire.Welcome, Process: p.number, Body: welcome.Append(nil)}) }
		return nil
	}
	process, err := openProcess(int(welcome.WorkerPID))
	if err != nil {
		worker.Close()
		p.refuse(s, err)
		return err
	}
	defer process.Close()
	p.mu.Lock()
	p.worker = worker
	p.mu.Unlock()
	if ctx.Err() != nil {
		p.hangUp()
	}
	s.events <- func() { s.sendToAgent(wire.Message{Kind: wire.Welcome, Process: p.number, Body: welcome.Append(nil)}) }
	p.relay(s, worker)
	worker.Close()
	awaitEnd(process)
	return nil
}

// relay forwards the worker's messages until it hangs up.
func (p *process) relay(s *session, worker *net.UnixConn) {
	buf := make([]byte, wire.MaxData)
	for {
		n, err := worker.Read(buf)
		if err != nil || n == 0 {
			return
		}
		body := bytes.Clone(buf[:n])
		s.events <- func() { s.passBack(p, body) }
	}
}

// maxUnsent bounds the worker's messages that wait for an agent that doesn't read. Pegasus's worker sends fewer, but
// the code that it executes comes from the machine.
const maxUnsent = 16

// passBack forwards a message of its worker to a process.
func (s *session) passBack(p *process, body []byte) {
	unsent := 0
	for _, m := range s.outbox {
		if m.Kind == wire.Data && m.Process == p.number {
			unsent++
		}
	}
	if unsent < maxUnsent {
		s.sendToAgent(wire.Message{Kind: wire.Data, Process: p.number, Body: body})
	}
}

// The result for a process that the hub can't serve: CUDA_ERROR_SYSTEM_NOT_READY.
const resultSystemNotReady = 802

func (p *process) refuse(s *session, err error) {
	w := callbuf.Welcome{Version: callbuf.Version, Result: resultSystemNotReady, Message: err.Error()}
	s.events <- func() { s.sendToAgent(wire.Message{Kind: wire.Welcome, Process: p.number, Body: w.Append(nil)}) }
}

// enter requests a worker from the daemon, and in between a segment from the machine. The worker is nil if the daemon
// refuses: the welcome has the reason.
func (p *process) enter(ctx context.Context, s *session) (w callbuf.Welcome, worker *net.UnixConn, err error) {
	daemon, err := s.endpoint.dial(ctx, s.hub.Endpoint)
	if err != nil {
		return w, nil, err
	}
	defer daemon.Close()
	stop := context.AfterFunc(ctx, func() { daemon.Close() })
	defer stop()
	defer func() {
		if err != nil && ctx.Err() != nil {
			err = errAway
		}
	}()
	daemon.SetDeadline(time.Now().Add(answerTime))
	hello := p.hello
	hello.Features |= callbuf.FeatureApart
	if most := s.hub.Memory.MostArena(); most != 0 && (hello.MostBytes == 0 || hello.MostBytes > most) {
		hello.MostBytes = most
	}
	if _, err := daemon.Write(hello.Append(nil)); err != nil {
		return w, nil, answered(err)
	}
	buf := make([]byte, 4096)
	n, err := daemon.Read(buf)
	if err != nil {
		return w, nil, answered(err)
	}
	if w, err := callbuf.ParseWelcome(buf[:n]); err == nil && w.Result != 0 {
		return w, nil, nil
	}
	var terms hypervisor.Terms
	if err := json.Unmarshal(buf[:n], &terms); err != nil {
		return w, nil, fmt.Errorf("the daemon gave no sensible answer: %w", err)
	}
	if err := p.lend(ctx, s, daemon, terms); err != nil {
		return w, nil, err
	}
	return receiveWelcome(daemon)
}

// lend requests a segment from the machine and lends it to the daemon.
func (p *process) lend(ctx context.Context, s *session, daemon *net.UnixConn, terms hypervisor.Terms) error {
	layout, err := terms.Geometry.Layout()
	if err != nil {
		return err
	}
	s.events <- func() {
		p.asked, p.layout, p.features = true, layout, s.features(p, terms.Features)
		s.sendToAgent(wire.Message{Kind: wire.Need, Process: p.number, Body: wire.NeedBody(layout.SegmentBytes)})
	}
	var l lent
	select {
	case l = <-p.lent:
	case <-time.After(cmp.Or(s.hub.patience, lendTime)):
		return errPaused
	case <-ctx.Done():
		return errAway
	}
	if l.err != nil {
		return l.err
	}
	b, err := json.Marshal(l.loan)
	if err != nil {
		return err
	}
	if _, _, err = daemon.WriteMsgUnix(b, unix.UnixRights(int(l.File.Fd())), nil); err != nil {
		return answered(err)
	}
	return nil
}

// receiveWelcome receives the daemon's answer and the worker's descriptors.
func receiveWelcome(daemon *net.UnixConn) (w callbuf.Welcome, worker *net.UnixConn, err error) {
	buf, oob := make([]byte, callbuf.WelcomeBytes+1), make([]byte, unix.CmsgSpace(4*4))
	n, oobn, _, _, err := daemon.ReadMsgUnix(buf, oob)
	if err != nil {
		return w, nil, answered(err)
	}
	files := received(oob[:oobn])
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	if w, err = callbuf.ParseWelcome(buf[:n]); err != nil || w.Result != 0 {
		return w, nil, err
	}
	if len(files) != callbuf.WelcomeFDs {
		return w, nil, fmt.Errorf("welcome with %d descriptors", len(files))
	}
	c, err := net.FileConn(files[1])
	if err != nil {
		return w, nil, err
	}
	worker, ok := c.(*net.UnixConn)
	if !ok {
		c.Close()
		return w, nil, fmt.Errorf("welcome with a %T", c)
	}
	return w, worker, nil
}

func received(oob []byte) (files []*os.File) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			continue
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			files = append(files, os.NewFile(uintptr(fd), "welcome"))
		}
	}
	return files
}

// openProcess opens a pidfd for awaitEnd.
func openProcess(pid int) (*os.File, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, fmt.Errorf("the worker, process %d: %w", pid, err)
	}
	return os.NewFile(uintptr(fd), "worker"), nil
}

// endTime is how long a worker may take to end after its connection was closed.
const endTime = 3 * time.Second

// awaitEnd blocks until a worker's end: as long as it lives it may write into its segment, which no other process may
// have then. After endTime the worker is killed.
func awaitEnd(process *os.File) {
	for patience := endTime; ; patience = time.Hour {
		p := []unix.PollFd{{Fd: int32(process.Fd()), Events: unix.POLLIN}}
		n, err := unix.Poll(p, int(patience.Milliseconds()))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if n > 0 || err != nil {
			return
		}
		unix.PidfdSendSignal(int(process.Fd()), unix.SIGKILL, nil, 0)
	}
}
