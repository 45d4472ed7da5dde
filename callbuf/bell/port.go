// Package bell is how a virtual machine's agent and its hub wake each other: by a
// virtio-serial port, which is a character device there and a socket of QEMU's here, or by
// an event channel of Xen. What
// is to be done lies in the region (callbuf/region); a byte in the port only says that it
// is time to look, and one that gets lost costs no more than that somebody looks later.
//
// Who calls it: agent (guest/agent) and hub (hypervisor/hub), each with its end.
//
// Whom it trusts: nobody at the other end. What comes isn't looked at, and who rings all
// the time is heard now and then.
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

// Name is by what a machine finds its port among others.
const Name = "org.pegasus.0"

const (
	// openAgain is how often a port is looked for that isn't there, or that nobody holds
	// at the other end.
	openAgain = 500 * time.Millisecond
	// patience is how long a port may take to come before that is worth a word: hub and agent
	// are often there first.
	patience = 2 * time.Second
	// hearAgain is how often rings are heard in the long run, and atOnce how many more may
	// come together: programs that don't know of each other ring.
	hearAgain = 5 * time.Millisecond
	atOnce    = 2
)

// Conn is a port that is open, and never blocks.
type Conn interface {
	io.Closer
	syscall.Conn
}

// waker is a Conn at which to ring is not to write a byte, and to hear isn't all there is to
// do with what was read: it has to be acknowledged.
type waker interface {
	Ring(fd uintptr)
	Heard(fd uintptr, said []byte) error
}

// Port is one end of a port, whether there is one just now or not.
type Port struct {
	open   func() (Conn, error)
	again  bool // after an end of file the Conn is of no use
	change func(error)

	rings chan struct{}
	live  atomic.Bool

	// Of keep.
	since time.Time // of the beginning
	told  bool      // change was told whether the port lives
	paced time.Time // until then nothing is heard, if that is to come; see pace

	mu   sync.Mutex
	conn syscall.RawConn // nil while there is none
	wake func(fd uintptr)
}

// Listen keeps a port until ctx ends: it is opened, and opened again after it was lost.
// reopen says that an end of file is the end of a Conn, as a socket's is; a device only
// says so while nobody has opened the other end. change is told when the port comes to
// live (nil) or is found dead for a while, and why; never twice the same.
func Listen(ctx context.Context, open func() (Conn, error), reopen bool, change func(error)) *Port {
	p := &Port{open: open, again: reopen, change: change, rings: make(chan struct{}, 1), since: time.Now()}
	go p.keep(ctx)
	return p
}

// Live says whether somebody holds the other end.
func (p *Port) Live() bool { return p.live.Load() }

// Rings tells of rings, and of the port's life and death; several at once are one.
func (p *Port) Rings() <-chan struct{} { return p.rings }

// Ring rings at the other end. It never waits: what doesn't fit is lost.
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

// set takes down whether the port lives, and tells whoever wants to know.
func (p *Port) set(err error) {
	switch {
	case p.told && p.live.Load() == (err == nil):
		return
	case !p.told && err != nil && time.Since(p.since) < patience:
		return
	}
	p.told = true
	p.live.Store(err == nil)
	p.change(err)
	p.hint()
}

// use listens at a port until that is of no more use.
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

// pace counts a ring, and says for how long no other is heard.
func (p *Port) pace(now time.Time) time.Duration {
	if earliest := now.Add(-atOnce * hearAgain); p.paced.Before(earliest) {
		p.paced = earliest
	}
	p.paced = p.paced.Add(hearAgain)
	return p.paced.Sub(now)
}

// hear waits for a ring.
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
		p.set(nil) // the other end is held, and silent
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
