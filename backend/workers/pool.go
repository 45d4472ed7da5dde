package workers

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"pegasus/backend/pidfd"
)

// pool keeps worker processes started and ready, since starting one takes longer than a program's cuInit should.
type pool struct {
	command []string
	park    func(pid int) // called for each started worker
	log     *slog.Logger

	mu     sync.Mutex
	want   int
	spare  []*candidate
	closed bool
	short  chan struct{} // has an element when spares may be missing
}

// candidate is a worker process without a job.
type candidate struct {
	cmd     *exec.Cmd
	conn    *net.UnixConn // to its descriptor 3
	process *os.File      // pidfd
}

func newPool(command []string, park func(pid int), log *slog.Logger) *pool {
	return &pool{command: command, park: park, log: log, short: make(chan struct{}, 1)}
}

// take returns a ready worker, or starts one.
func (p *pool) take() (*candidate, error) {
	p.mu.Lock()
	var c *candidate
	for c == nil && len(p.spare) > 0 {
		last := len(p.spare) - 1
		c, p.spare = p.spare[last], p.spare[:last]
		if c.dead() {
			c.discard()
			c = nil
		}
	}
	p.mu.Unlock()
	p.refill()
	if c != nil {
		return c, nil
	}
	return p.start()
}

func (p *pool) refill() {
	select {
	case p.short <- struct{}{}:
	default:
	}
}

// resize sets the number of ready workers to keep.
func (p *pool) resize(want int) {
	p.mu.Lock()
	p.want = want
	p.mu.Unlock()
	p.refill()
}

func (p *pool) ready() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.spare)
}

// run keeps the pool full until ctx ends.
func (p *pool) run(ctx context.Context) {
	for {
		select {
		case <-p.short:
		case <-ctx.Done():
			return
		}
		for ctx.Err() == nil && p.lacks() {
			c, err := p.start()
			if err != nil {
				p.log.Error("start a worker", "err", err)
				time.AfterFunc(time.Second, p.refill)
				break
			}
			p.keep(c)
		}
	}
}

func (p *pool) lacks() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.spare) < p.want && !p.closed
}

func (p *pool) keep(c *candidate) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		c.discard()
		return
	}
	p.spare = append(p.spare, c)
}

// close ends the spare workers.
func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, c := range p.spare {
		c.discard()
	}
	p.spare = nil
}

// start starts a worker process in a session of its own, so that signals to the daemon's terminal or process group do
// not reach it.
func (p *pool) start() (*candidate, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("start a worker: %w", err)
	}
	theirs := os.NewFile(uintptr(fds[1]), "worker")
	defer theirs.Close()
	conn, err := connOf(fds[0])
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(p.command[0], p.command[1:]...)
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.Stderr = os.Stderr
	cmd.Dir = "/"
	fd := -1
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, PidFD: &fd}
	if err := cmd.Start(); err != nil {
		conn.Close()
		return nil, fmt.Errorf("start a worker: %w", err)
	}
	p.park(cmd.Process.Pid)
	if err := offerFirst(cmd.Process.Pid); err != nil {
		p.log.Warn("set a worker's oom_score_adj failed", "err", err)
	}
	c := &candidate{cmd: cmd, conn: conn}
	if c.process, err = processOf(cmd.Process.Pid, fd); err != nil {
		c.discard()
		return nil, err
	}
	return c, nil
}

// processOf returns a file for the pidfd from the start, or opens a pidfd where the kernel returned none, -1.
func processOf(pid, fd int) (*os.File, error) {
	if fd < 0 {
		return pidfd.Open(pid)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), fmt.Sprintf("pidfd:%d", pid)), nil
}

// connOf returns a connection for a socket, and takes ownership of the descriptor.
func connOf(fd int) (*net.UnixConn, error) {
	f := os.NewFile(uintptr(fd), "socket")
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	u, ok := c.(*net.UnixConn)
	if !ok {
		c.Close()
		return nil, fmt.Errorf("socket: %T is no unix socket", c)
	}
	return u, nil
}

func (c *candidate) pid() int { return c.cmd.Process.Pid }

func (c *candidate) dead() bool { return pidfd.HasExited(c.process) }

// discard ends a worker without a job.
func (c *candidate) discard() {
	c.conn.Close()
	c.cmd.Process.Kill()
	c.cmd.Wait()
	if c.process != nil {
		c.process.Close()
	}
}

// sacrifice is how much higher a worker's oom_score_adj is than its daemon's, of 1000.
const sacrifice = 500

// offerFirst makes the kernel end a worker before the daemon when the host runs out of memory.
func offerFirst(pid int) error {
	own, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(own)))
	if err != nil {
		return err
	}
	return os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), []byte(strconv.Itoa(min(n+sacrifice, 1000))), 0)
}
