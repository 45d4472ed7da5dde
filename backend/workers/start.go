package workers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"time"

	"pegasus/backend/pidfd"
	"pegasus/backend/worker"
)

// setUpTime bounds the time in which a worker must receive its job.
const setUpTime = 10 * time.Second

// Process is a worker process with a job. Its owner awaits its end, then calls Close.
type Process struct {
	PID  int
	file *os.File      // pidfd
	conn *net.UnixConn // to its descriptor 3
	cmd  *exec.Cmd     // for Reap; nil if a previous daemon started it

	killed atomic.Bool // by Kill
}

// Adopted returns the process of a survivor, and takes ownership of its connection; file is the process's pidfd.
func Adopted(s *Survivor, file *os.File) *Process {
	return &Process{PID: s.PID, file: file, conn: s.Conn}
}

// Start sends a job to a ready worker, and replaces once a worker that died while it was idle. confine puts the worker
// into its domain's cgroups before the worker has the job.
func (w *Workers) Start(job *worker.Job, files worker.Files, confine func(pid int)) (*Process, error) {
	var err error
	for range 2 {
		var c *candidate
		if c, err = w.poolOf(job.Accelerator.Type).take(); err != nil {
			return nil, err
		}
		confine(c.pid())
		if err := w.saveRecord(job, c.pid()); err != nil { // the next daemon could neither take it over nor end it
			c.discard()
			return nil, err
		}
		c.conn.SetWriteDeadline(time.Now().Add(setUpTime))
		if err = worker.SendJob(c.conn, *job, files); err == nil {
			return &Process{PID: c.pid(), file: c.process, conn: c.conn, cmd: c.cmd}, nil
		}
		c.discard()
	}
	return nil, fmt.Errorf("send a job to a worker: %w", err)
}

// Kill ends the process.
func (p *Process) Kill() error {
	p.killed.Store(true)
	return pidfd.Kill(p.file)
}

// Killed reports whether this daemon has killed the process.
func (p *Process) Killed() bool { return p.killed.Load() }

// Await blocks until the process has ended and returns nil, or returns ctx's error.
func (p *Process) Await(ctx context.Context) error { return pidfd.AwaitExit(ctx, p.file) }

// CPUTime returns the process's time on the host's CPUs in nanoseconds. An ended child has it until Reap.
func (p *Process) CPUTime() (ns int64, ok bool) {
	ns, err := pidfd.CPUTime(p.PID)
	return ns, err == nil && (p.cmd != nil || !pidfd.HasExited(p.file)) // another process may have the PID of no child
}

// Order sends the worker an order. An ended worker needs none, and a worker that leaves a hundred orders unread
// receives no more.
func (p *Process) Order(o worker.Order) { worker.SendOrder(p.conn, o) }

// Reap collects the exit status of an ended worker, if it is a child of this daemon, and returns the failure in
// parentheses, if any.
func (p *Process) Reap() string {
	if p.cmd == nil {
		return ""
	}
	err := p.cmd.Wait()
	if err == nil {
		return ""
	}
	return fmt.Sprintf(" (%v)", err)
}

// reportEvery is the least interval between two reports of a living worker.
const reportEvery = 10 * time.Millisecond

// Reports calls handle for each report of the worker, until handle returns false, the worker closes the connection, or
// the deadline of StopReports passes. ended is closed when the worker has ended.
func (p *Process) Reports(ended <-chan struct{}, handle func(worker.Report) bool) {
	for {
		r, err := worker.ReceiveReport(p.conn)
		var closed *net.OpError
		if errors.Is(err, io.EOF) || errors.As(err, &closed) {
			return
		}
		if err == nil && !handle(r) { // else the message is no report
			return
		}
		select {
		case <-ended:
		case <-time.After(reportEvery):
		}
	}
}

// StopReports sets the time until which Reports waits for a report.
func (p *Process) StopReports(at time.Time) { p.conn.SetReadDeadline(at) }

// Close releases the descriptors.
func (p *Process) Close() {
	p.file.Close()
	p.conn.Close()
}

func (w *Workers) socketPath(id uint64) string {
	return filepath.Join(w.opt.RuntimeDir, "workers", fmt.Sprintf("%d.sock", id))
}

// ListenForSuccessor makes the socket at which the next daemon finds the worker with an ID.
func (w *Workers) ListenForSuccessor(id uint64) (*os.File, error) {
	path := w.socketPath(id)
	os.Remove(path)
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		return nil, fmt.Errorf("worker's socket: %w", err)
	}
	defer l.Close()
	l.SetUnlinkOnClose(false)
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, fmt.Errorf("worker's socket: %w", err)
	}
	return l.File()
}
