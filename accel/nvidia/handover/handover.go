// Package handover passes file descriptors of device memory between the workers of a domain, each of which exports its
// memory through its own driver instance.
//
// Callers: accel/nvidia.
//
// Trust boundary: a worker that exports memory listens at a socket in the abstract namespace, with a name and no file,
// so no daemon has to be running. The name is no secret: a peer must have the same user as the worker, which no other
// domain has if the daemon is root, and must send the tag of the memory, which can't be guessed.
package handover

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"pegasus/accel"
)

// ExportedFD describes the exported part of some memory.
type ExportedFD struct {
	Whole     uint64 // bytes of the memory
	At, Bytes uint64 // the exported part
}

// Offers are the exports of a process. The zero value exports nothing.
type Offers struct {
	mu       sync.Mutex
	all      map[uint64]offer // by tag
	id       uint32
	listener *net.UnixListener
}

type offer struct {
	of       uint64
	exported ExportedFD
	export   func() (fd int, err error)
}

// patience is how long the other side of a socket may take.
const patience = 5 * time.Second

func address(id uint32) *net.UnixAddr {
	return &net.UnixAddr{Name: fmt.Sprintf("@pegasus-gifts-%08x", id), Net: "unixpacket"}
}

// Add exports a part of the memory that the caller identifies by a number, and returns the ticket by which others
// import it: the same one for the same part. export creates a descriptor of the memory for each importer; it is called
// from another goroutine, and not after Forget.
func (o *Offers) Add(of uint64, g ExportedFD, export func() (fd int, err error), log *slog.Logger) (accel.ShareToken, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.begin(log); err != nil {
		return accel.ShareToken{}, err
	}
	for tag, other := range o.all {
		if other.of == of && other.exported == g {
			return accel.ShareToken{ID: o.id, Tag: tag}, nil
		}
	}
	t := accel.ShareToken{ID: o.id, Tag: rand.Uint64()}
	o.all[t.Tag] = offer{of, g, export}
	return t, nil
}

// AddTagged exports a part of memory by a tag that all exporters of the same memory agree on, and that no other process
// can guess.
func (o *Offers) AddTagged(tag, of uint64, g ExportedFD, export func() (fd int, err error), log *slog.Logger) (accel.ShareToken, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.begin(log); err != nil {
		return accel.ShareToken{}, err
	}
	o.all[tag] = offer{of, g, export}
	return accel.ShareToken{ID: o.id, Tag: tag}, nil
}

// Forget ends all exports of that memory.
func (o *Offers) Forget(of uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for tag, one := range o.all {
		if one.of == of {
			delete(o.all, tag)
		}
	}
}

// Close ends all exports.
func (o *Offers) Close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	clear(o.all)
	if o.listener != nil {
		o.listener.Close()
	}
}

// begin creates the socket and the table at the first export. o.mu is held.
func (o *Offers) begin(log *slog.Logger) error {
	if o.listener != nil {
		return nil
	}
	o.all = map[uint64]offer{}
	return o.listen(log)
}

// listen creates the socket. o.mu is held.
func (o *Offers) listen(log *slog.Logger) error {
	for {
		id := rand.Uint32()
		l, err := net.ListenUnix("unixpacket", address(id))
		if errors.Is(err, unix.EADDRINUSE) {
			continue
		}
		if err == nil {
			o.id, o.listener = id, l
			go o.serve(l, log)
		}
		return err
	}
}

func (o *Offers) serve(l *net.UnixListener, log *slog.Logger) {
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			if !errors.Is(err, net.ErrClosed) {
				log.Error("accept requests for device memory", "err", err)
			}
			return
		}
		if err := o.answer(c); err != nil {
			log.Info("answer a request for device memory", "err", err)
		}
		c.Close()
	}
}

// answer sends the file descriptor of the memory identified by the request's tag.
func (o *Offers) answer(c *net.UnixConn) error {
	if err := greet(c); err != nil {
		return err
	}
	var tag [8]byte
	if n, err := c.Read(tag[:]); err != nil || n != len(tag) {
		return fmt.Errorf("request of %d bytes: %w", n, errors.Join(err, os.ErrInvalid))
	}
	o.mu.Lock()
	defer o.mu.Unlock() // so that the memory stays until it was sent
	one, ok := o.all[binary.LittleEndian.Uint64(tag[:])]
	if !ok {
		return fmt.Errorf("request for an unknown tag: %w", os.ErrNotExist)
	}
	fd, err := one.export()
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_, _, err = c.WriteMsgUnix(one.exported.append(nil), unix.UnixRights(fd), nil)
	return err
}

const giftBytes = 24

// append appends the encoded answer that accompanies a descriptor.
func (g *ExportedFD) append(b []byte) []byte {
	for _, v := range []uint64{g.Whole, g.At, g.Bytes} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return b
}

// read decodes such an answer.
func read(b []byte) (g ExportedFD, err error) {
	if len(b) != giftBytes {
		return g, fmt.Errorf("answer of %d bytes: %w", len(b), os.ErrInvalid)
	}
	g = ExportedFD{binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:]), binary.LittleEndian.Uint64(b[16:])}
	if g.Bytes == 0 || g.At > g.Whole || g.Bytes > g.Whole-g.At {
		return g, fmt.Errorf("answer for %d bytes at %d of %d: %w", g.Bytes, g.At, g.Whole, os.ErrInvalid)
	}
	return g, nil
}

// Fetch requests memory that another process exports. The caller owns the descriptor.
func Fetch(t accel.ShareToken) (g ExportedFD, fd int, err error) {
	c, err := net.DialUnix("unixpacket", nil, address(t.ID))
	if err != nil {
		return g, -1, err
	}
	defer c.Close()
	if err := greet(c); err != nil {
		return g, -1, err
	}
	if _, err := c.Write(binary.LittleEndian.AppendUint64(nil, t.Tag)); err != nil {
		return g, -1, err
	}
	var text [giftBytes]byte
	oob := make([]byte, unix.CmsgSpace(4))
	n, oobn, _, _, err := c.ReadMsgUnix(text[:], oob)
	if err != nil {
		return g, -1, err
	}
	if fd, err = descriptor(oob[:oobn]); err != nil {
		return g, -1, err
	}
	if g, err = read(text[:n]); err != nil {
		unix.Close(fd)
		return g, -1, err
	}
	return g, fd, nil
}

// descriptor returns the descriptor that came with a message.
func descriptor(oob []byte) (int, error) {
	all, err := unix.ParseSocketControlMessage(oob)
	if err != nil || len(all) != 1 {
		return -1, fmt.Errorf("answer without a descriptor: %w", errors.Join(err, os.ErrInvalid))
	}
	fds, err := unix.ParseUnixRights(&all[0])
	if err != nil || len(fds) != 1 {
		return -1, fmt.Errorf("answer with %d descriptors: %w", len(fds), errors.Join(err, os.ErrInvalid))
	}
	unix.CloseOnExec(fds[0])
	return fds[0], nil
}

// greet checks that the peer has the same user, and sets a deadline for the connection.
func greet(c *net.UnixConn) error {
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var cred *unix.Ucred
	control := raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err := errors.Join(err, control); err != nil {
		return err
	}
	if int(cred.Uid) != os.Getuid() {
		return fmt.Errorf("peer of user %d: %w", cred.Uid, os.ErrPermission)
	}
	return nil
}
