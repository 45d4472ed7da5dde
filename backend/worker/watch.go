package worker

import (
	"errors"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"pegasus/accel"
	"pegasus/backend/worker/session"
	"pegasus/callbuf"
	"pegasus/cuda"
)

// watchGuest blocks until the guest process ends, seen by its hang-up or its pidfd, and then ends the session. Until
// then it processes the guest's rings.
func (w *worker) watchGuest(s *session.Session) {
	fds := []unix.PollFd{{Fd: int32(w.guestFD), Events: unix.POLLRDHUP}}
	if w.job.Features&callbuf.FeatureBell != 0 {
		fds[0].Events |= unix.POLLIN
	}
	if p := w.files.GuestProcess; p != nil {
		fds = append(fds, unix.PollFd{Fd: int32(p.Fd()), Events: unix.POLLIN})
	}
	for {
		n, err := unix.Poll(fds, -1)
		if errors.Is(err, unix.EINTR) || n == 0 {
			continue
		}
		if err != nil {
			w.log.Error("watch the guest process", "err", err)
		}
		if err == nil && fds[0].Revents == unix.POLLIN && (len(fds) == 1 || fds[1].Revents == 0) {
			w.drainDoorbell()
			continue
		}
		s.End(cuda.ErrorDeinitialized, "")
		return
	}
}

// drainDoorbell wakes the poller and discards one message. Its content is irrelevant: the packet that it may announce
// is in the ring already.
func (w *worker) drainDoorbell() {
	w.host.Rung()
	var b [1]byte
	unix.Recvfrom(w.guestFD, b[:], unix.MSG_DONTWAIT)
	time.Sleep(callbuf.RingPause)
}

// serveDaemons executes the daemon's orders, and accepts new daemons.
func (w *worker) serveDaemons(s *session.Session) {
	w.mu.Lock()
	first := w.daemon
	w.mu.Unlock()
	go w.executeOrders(first, s)
	if w.listener == nil {
		return
	}
	for {
		c, err := w.listener.AcceptUnix()
		if err != nil {
			if !errors.Is(err, net.ErrClosed) {
				w.log.Error("wait for a new daemon", "err", err)
			}
			return
		}
		if err := w.acceptDaemon(c); err != nil {
			w.log.Warn("adoption rejected", "err", err)
			c.Close()
			continue
		}
		go w.executeOrders(c, s)
	}
}

var errPeer = errors.New("peer is neither root nor the worker's user")

// acceptDaemon makes a connection the one to the daemon, if root or the worker's own user made it, and sends the
// worker's description.
func (w *worker) acceptDaemon(c *net.UnixConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var peer *unix.Ucred
	var errno error
	if err := raw.Control(func(fd uintptr) { peer, errno = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return err
	}
	if errno != nil {
		return errno
	}
	if peer.Uid != 0 && peer.Uid != startUID {
		return errPeer
	}
	if err := sendNow(c, Survivor{Job: w.job}, w.files.survivors()); err != nil { // a new connection has room for it
		return err
	}
	w.mu.Lock()
	old := w.daemon
	w.daemon = c
	w.mu.Unlock()
	if old != nil {
		old.Close()
	}
	return nil
}

// startUID is the user that started the worker, before the worker became its domain's user.
var startUID = uint32(os.Getuid())

// executeOrders executes a daemon's orders until it hangs up. Then the worker continues alone, if it has a listener at
// which the next daemon can find it; else it ends.
func (w *worker) executeOrders(c *net.UnixConn, s *session.Session) {
	for {
		var o Order
		files, err := receive(c, &o)
		closeAll(files)
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
				w.log.Warn("daemon lost", "err", err)
			}
			break
		}
		if l := w.can.Control; l != nil && o.KernelTimeout > 0 {
			l.LimitKernels(o.KernelTimeout)
		}
		if d := w.can.Coordination; d != nil && o.Share != nil {
			d.SetShare(accel.Share(*o.Share))
		}
		if o.LogLevel != "" {
			w.level.UnmarshalText([]byte(o.LogLevel)) // an unknown level changes nothing
		}
		if o.End != 0 {
			s.End(cuda.Result(o.End), o.Why)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.daemon == c {
		w.daemon = nil
	}
	c.Close()
	if w.listener == nil {
		s.End(cuda.ErrorSystemNotReady, "daemon lost; no listener for another one")
	}
}

// hangUp ends serveDaemons. The daemon's connection stays open for the last report.
func (w *worker) hangUp() {
	if w.listener != nil {
		w.listener.Close()
	}
}
