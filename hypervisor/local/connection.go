package local

import (
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"pegasus/callbuf"
)

// helloTime is how long a connected process may take to send its hello.
const helloTime = 5 * time.Second

// errSilent reports a connection that closed without data: a probe.
var errSilent = errors.New("the peer hung up")

// connection is a process that has sent its hello and waits for the answer.
type connection struct {
	conn    *net.UnixConn
	pid     int
	uid     int
	process *os.File
	hello   callbuf.Hello
}

// meet reads the hello. An invalid hello gets an answer too, so that the program reports the cause.
func meet(c *net.UnixConn) (*connection, error) {
	n := &connection{conn: c}
	c.SetDeadline(time.Now().Add(helloTime))
	buf := make([]byte, callbuf.HelloBytes+1)
	size, err := c.Read(buf)
	if err != nil || size == 0 {
		return nil, errSilent
	}
	n.pid, n.uid, n.process, err = peer(c)
	if err != nil {
		return nil, err
	}
	n.hello, err = callbuf.ParseHello(buf[:size])
	if err == nil && n.hello.Version != callbuf.Version {
		err = fmt.Errorf("the guest library speaks version %d, this daemon %d: install the libcuda.so.1 of this release", n.hello.Version, callbuf.Version)
	}
	if err != nil {
		n.Refuse(resultSystemDriverMismatch, err.Error())
		n.process.Close()
		return nil, fmt.Errorf("process %d: %w", n.pid, err)
	}
	c.SetDeadline(time.Time{})
	return n, nil
}

// resultSystemDriverMismatch is CUDA_ERROR_SYSTEM_DRIVER_MISMATCH.
const resultSystemDriverMismatch = 803

func (n *connection) PID() int          { return n.pid }
func (n *connection) Process() *os.File { return n.process }
func (n *connection) Features() uint64  { return n.hello.Features }

func (n *connection) Admit(w callbuf.Welcome, segment, worker *os.File) error {
	rights := unix.UnixRights(int(segment.Fd()), int(worker.Fd()))
	if err := n.answer(w, rights); err != nil {
		return fmt.Errorf("welcome process %d: %w", n.pid, err)
	}
	return nil
}

func (n *connection) Refuse(result int32, why string) error {
	return n.answer(callbuf.Welcome{Version: callbuf.Version, Result: result, Message: why}, nil)
}

func (n *connection) answer(w callbuf.Welcome, rights []byte) error {
	n.conn.SetWriteDeadline(time.Now().Add(helloTime))
	_, _, err := n.conn.WriteMsgUnix(w.Append(nil), rights, nil)
	return err
}
