// Package bell lets a virtual machine's agent and its hub wake each other: by a virtio-serial port, which is
// a character device in the machine and a socket of QEMU's on the host, or by an event channel of Xen. The
// data is in the region (callbuf/region); a byte in the port is only a hint to check it, and a lost byte only
// delays that check.
//
// Callers: agent (guest/agent) and hub (hypervisor/hub), each with its end.
//
// Trust boundary: the port; the other end is not trusted. The data from it is ignored, and the
// rate of its rings is limited.
package bell

import (
	"context"
	"io"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Name identifies the port among the machine's ports.
const Name = "org.pegasus.0"

const (
	// openAgain is the retry interval for a port that does not exist, or that is not open at the other end.
	openAgain = 500 * time.Millisecond
	// patience is the time after which a missing port is reported: hub and agent often start first.
	patience = 2 * time.Second
	// hearAgain is the interval at which rings are received in the long run, and atOnce the permitted burst
	// beyond that: independent programs ring.
	hearAgain = 5 * time.Millisecond
	atOnce    = 2
)

// Conn is an open, non-blocking port.
type Conn interface {
	io.Closer
	syscall.Conn
}

// waker is a Conn that rings by other means than a byte. Data received from it must be acknowledged.
type waker interface {
	Ring(fd uintptr)
	Heard(fd uintptr, said []byte) error
}

// Port is one end of a port, connected or not.
type Port struct {
	open   func() (Conn, error)
	again  bool // after an end of file the Conn is of no use
	change func(error)

	rings chan struct{}
	live  atomic.Bool

	// Fields of keep.
	since    time.Time // of the beginning
	reported bool      // change was called with the port's state
	paced    time.Time // until then no rings are received, if later than now; see pace

	mu   sync.Mutex
	conn syscall.RawConn // nil while there is none
	wake func(fd uintptr)
}

// Listen keeps a port open until ctx ends, and reopens it when it was lost. reopen means that an end of file
// ends a Conn, as a socket's does; a device returns it only while the other end is not open. change is called
// with nil when the port becomes live, and with the reason when it has been dead for a while; never twice
// with the same state.
func Listen(ctx context.Context, open func() (Conn, error), reopen bool, change func(error)) *Port {
	p := &Port{open: open, again: reopen, change: change, rings: make(chan struct{}, 1), since: time.Now()}
	go p.keep(ctx)
	return p
}

// Live reports whether the other end is open.
func (p *Port) Live() bool { return p.live.Load() }

// Rings receives an element after a ring and after a change of the port's liveness; pending ones are merged.
func (p *Port) Rings() <-chan struct{} { return p.rings }

// Ring rings the other end. It never blocks: a byte that does not fit is dropped.
func (p *Port) Ring() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conn == nil {
		return
	}
	p.conn.Write(func(fd uintptr) bool {
		p.wake(fd)
		return true
	})
}

func (p *Port) hint() {
	select {
	case p.rings <- struct{}{}:
	default:
	}
}

// keep opens the port, whenever that is due, and listens.
func (p *Port) keep(ctx context.Context) {
	for ctx.Err() == nil {
		c, err := p.open()
		if err == nil {
			err = p.use(ctx, c)
			c.Close()
		}
		if ctx.Err() == nil {
			p.set(err)
		}
		pause(ctx, openAgain)
	}
}

// set updates the port's liveness, and calls change.
func (p *Port) set(err error) {
	switch {
	case p.reported && p.live.Load() == (err == nil):
		return
	case !p.reported && err != nil && time.Since(p.since) < patience:
		return
	}
	p.reported = true
	p.live.Store(err == nil)
	p.change(err)
	p.hint()
}

// use listens at a port until the Conn fails.
func (p *Port) use(ctx context.Context, c Conn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	wake, heard := ring, func(uintptr, []byte) error { return nil }
	if w, ok := c.(waker); ok {
		wake, heard = w.Ring, w.Heard
	}
	p.mu.Lock()
	p.conn, p.wake = raw, wake
	p.mu.Unlock()
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer func() {
		stop()
		p.mu.Lock()
		p.conn = nil
		p.mu.Unlock()
	}()
	for {
		err := p.hear(raw, heard)
		switch {
		case err == nil:
			p.hint()
			pause(ctx, p.pace(time.Now()))
		case err == io.EOF && !p.again:
			p.set(err)
			pause(ctx, openAgain)
		default:
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// pace counts a ring, and returns for how long no other is received.
func (p *Port) pace(now time.Time) time.Duration {
	if earliest := now.Add(-atOnce * hearAgain); p.paced.Before(earliest) {
		p.paced = earliest
	}
	p.paced = p.paced.Add(hearAgain)
	return p.paced.Sub(now)
}

// hear blocks until a ring.
func (p *Port) hear(raw syscall.RawConn, heard func(fd uintptr, said []byte) error) error {
	var b [512]byte
	var n int
	var err error
	ended := raw.Read(func(fd uintptr) bool {
		n, err = unix.Read(int(fd), b[:])
		if err == nil && n > 0 {
			err = heard(fd, b[:n])
		}
		if err != unix.EAGAIN {
			return true
		}
		p.set(nil) // the other end is open, and silent
		return false
	})
	switch {
	case ended != nil:
		return ended
	case err != nil:
		return err
	case n == 0:
		return io.EOF
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
