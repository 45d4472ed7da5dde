// Package frontend makes a Go program a guest of a domain: the program connects to the daemon, loads PTX, allocates
// device memory, launches kernels and copies their results, without CUDA's library and without cgo.
//
// Dial connects to a domain's socket, which Socket returns in a program that pegasus run has started, or in a virtual
// machine with an agent. NewContext creates a context on a device; memory, modules, streams and events belong to it.
// Launches and fills are queued, in the order of their stream; copies, and calls that return a value, block until it is
// there. Errors are of type cuda.Result where the driver API has a number for them. After a kernel's fault each later
// call of its context returns the same error.
//
// A Client is the connection of one guest process: it owns the segment, a block of its arena for each copy that is under
// way, and the ids of contexts and objects. All methods may be called from any goroutine.
//
// Callers: Go programs of users, guest/smi, the tests. CUDA programs load guest/libcuda, which uses the same format in
// C, because a Go runtime cannot be loaded into them.
//
// Trust boundary: the client trusts the daemon and its worker, which map the same memory.
package frontend

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"pegasus/callbuf"
	"pegasus/cuda"
)

// ErrWorkerGone is returned by every call once the worker has died.
var ErrWorkerGone = errors.New("pegasus: the worker of this process has ended")

// dialTimeout covers the restart of a daemon.
const dialTimeout = 5 * time.Second

// AgentSocket is the socket of a virtual machine's agent.
const AgentSocket = "/run/pegasus/guest.sock"

// Socket returns the socket of this environment's domain, or "" if there is none: PEGASUS_SOCKET, which pegasus run
// sets, otherwise the socket of a virtual machine's agent.
func Socket() string {
	if path := os.Getenv("PEGASUS_SOCKET"); path != "" {
		return path
	}
	if _, err := os.Stat(AgentSocket); err == nil {
		return AgentSocket
	}
	return ""
}

// Client is one guest process's connection: a segment and the worker behind
// it. Its methods may be called from any goroutine.
type Client struct {
	*callbuf.Guest
	welcome  callbuf.Welcome
	mem      []byte
	arena    window
	device   window
	worker   *net.UnixConn
	fd       int // of worker, for polling
	space    space
	contexts contexts
	ids      atomic.Uint64

	close sync.Once
}

// Dial connects to a domain's socket, requests a worker and maps its segment.
func Dial(path string) (*Client, error) {
	daemon, err := dialDaemon(path)
	if err != nil {
		return nil, err
	}
	defer daemon.Close()
	daemon.SetDeadline(time.Now().Add(2 * dialTimeout))
	if _, err := daemon.Write(callbuf.Hello{Version: callbuf.Version, Features: callbuf.FeatureBell | callbuf.HelloPlaced}.Append(nil)); err != nil {
		return nil, fmt.Errorf("greet %s: %w", path, err)
	}
	w, files, err := readWelcome(daemon)
	if err != nil {
		return nil, fmt.Errorf("greet %s: %w", path, err)
	}
	if w.Result != 0 {
		return nil, fmt.Errorf("%s refused: %s: %w", path, w.Message, cuda.Result(w.Result))
	}
	return attach(w, files)
}

// dialDaemon retries while the socket has no listener: the daemon may be restarting.
func dialDaemon(path string) (*net.UnixConn, error) {
	addr := &net.UnixAddr{Name: path, Net: "unixpacket"}
	for deadline := time.Now().Add(dialTimeout); ; {
		c, err := net.DialUnix("unixpacket", nil, addr)
		if err == nil {
			return c, nil
		}
		if !absent(path, err) || time.Now().After(deadline) {
			return nil, unreachable(path, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// maxSocketPath is the kernel's limit on a socket's path, in bytes.
const maxSocketPath = 107

// absent reports whether err is that of a socket without a listener, or of a missing one.
func absent(path string, err error) bool {
	if info, is := os.Stat(path); is == nil && info.Mode().Type() != os.ModeSocket {
		return false
	}
	return errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.ENOENT)
}

// unreachable returns the error for a socket that cannot be connected to, with the settings that decide.
func unreachable(path string, err error) error {
	switch {
	case absent(path, err):
		return fmt.Errorf("no pegasusd at %s: %w", path, err)
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return fmt.Errorf("connect to %s: %w: socket_owner, socket_group and socket_mode of the domain, and the directories above, admit users", path, err)
	case len(path) > maxSocketPath, errors.Is(err, unix.ECONNREFUSED), errors.Is(err, unix.EPROTOTYPE), errors.Is(err, unix.ENOTDIR):
		return fmt.Errorf("connect to %.*s: %w: want the path of a domain's socket, of at most %d bytes", 2*maxSocketPath, path, err, maxSocketPath)
	default:
		return fmt.Errorf("connect to %s: %w", path, err)
	}
}

func readWelcome(c *net.UnixConn) (callbuf.Welcome, []*os.File, error) {
	var b [callbuf.MaxWelcomeBytes + 1]byte
	oob := make([]byte, unix.CmsgSpace(4*4))
	n, oobn, _, _, err := c.ReadMsgUnix(b[:], oob)
	if err != nil {
		return callbuf.Welcome{}, nil, err
	}
	files, err := receivedFiles(oob[:oobn])
	if err != nil {
		return callbuf.Welcome{}, nil, err
	}
	w, err := callbuf.ParseWelcome(b[:n])
	if err == nil && w.Result == 0 && len(files) != callbuf.WelcomeFDs {
		err = fmt.Errorf("welcome with %d descriptors, want %d", len(files), callbuf.WelcomeFDs)
	}
	if err != nil {
		closeAll(files)
	}
	return w, files, err
}

func receivedFiles(oob []byte) (files []*os.File, err error) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, err
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
	return files, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

func attach(w callbuf.Welcome, files []*os.File) (_ *Client, err error) {
	segment, socket := files[0], files[1]
	defer segment.Close()
	defer socket.Close()
	mem, err := callbuf.MapParts(segment, callbuf.Extents{{Offset: w.SegmentOffset, Bytes: w.SegmentBytes}})
	if err != nil {
		return nil, err
	}
	g, err := callbuf.Open(mem)
	if err != nil {
		callbuf.UnmapParts(mem)
		return nil, err
	}
	conn, err := net.FileConn(socket)
	if err != nil {
		callbuf.UnmapParts(mem)
		return nil, fmt.Errorf("worker's socket: %w", err)
	}
	c := &Client{Guest: g, welcome: w, mem: mem, worker: conn.(*net.UnixConn)}
	c.space.init(c.Layout().ArenaBytes)
	c.ids.Store(cuda.FirstStream)
	if raw, err := c.worker.SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) { c.fd = int(fd) })
	}
	c.RingBy(func() { unix.Sendto(c.fd, []byte{0}, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, nil) })
	if err := c.agreeOnWindows(segment); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// agreeOnWindows determines bases for arena and device memory that are free on both sides.
func (c *Client) agreeOnWindows(segment *os.File) error {
	arena, device := 0, 0
	for {
		arenaBytes, deviceBytes := uintptr(c.Layout().ArenaBytes), uintptr(c.welcome.DeviceBytes)
		arena = c.arena.take(arena, c.welcome.ArenaBases, arenaBytes, func(base uintptr) error {
			return mapFileAt(base, arenaBytes, int(segment.Fd()), c.welcome.SegmentOffset+c.Layout().ArenaOffset)
		})
		device = c.device.take(device, c.welcome.DeviceBases, deviceBytes, func(base uintptr) error {
			return reserveAt(base, deviceBytes)
		})
		reply, err := c.proposeWindows(index(arena), index(device))
		if err != nil {
			return err
		}
		if reply.Result != 0 {
			return fmt.Errorf("worker could not map the segment: %w", cuda.Result(reply.Result))
		}
		again := false
		if !reply.ArenaOK && arena < callbuf.NumBases {
			c.arena.drop()
			arena, again = arena+1, true
		}
		if !reply.DevOK && device < callbuf.NumBases {
			c.device.drop()
			device, again = device+1, true
		}
		if !again {
			return nil
		}
	}
}

func index(i int) uint32 {
	if i >= callbuf.NumBases {
		return callbuf.NoWindow
	}
	return uint32(i)
}

func (c *Client) proposeWindows(arena, device uint32) (callbuf.MapReply, error) {
	c.worker.SetDeadline(time.Now().Add(2 * dialTimeout))
	defer c.worker.SetDeadline(time.Time{})
	if _, err := c.worker.Write(callbuf.MapRequest{Arena: arena, Device: device}.Append(nil)); err != nil {
		return callbuf.MapReply{}, fmt.Errorf("propose windows: %w", err)
	}
	var b [callbuf.MappedBytes + 1]byte
	n, err := c.worker.Read(b[:])
	if err != nil {
		return callbuf.MapReply{}, fmt.Errorf("propose windows: %w", err)
	}
	return callbuf.ParseMapped(b[:n])
}

// alive returns an error if the worker has hung up. The socket carries no data, so anything readable on it is
// the end.
func (c *Client) alive() error {
	p := []unix.PollFd{{Fd: int32(c.fd), Events: unix.POLLIN | unix.POLLRDHUP}}
	if n, _ := unix.Poll(p, 0); n > 0 {
		return ErrWorkerGone
	}
	return nil
}

// failed returns the process's or the context's sticky result, or nil.
func (c *Client) failed(context uint32) error {
	if r := c.Poison(); r != 0 {
		return cuda.Result(r)
	}
	if r := c.ContextPoison(context); r != 0 {
		return cuda.Result(r)
	}
	return nil
}

// Queue sends a call that has no reply.
func (c *Client) Queue(h callbuf.Header, payload []byte) error {
	if err := c.failed(h.Context); err != nil {
		return err
	}
	return c.Send(h, payload, c.alive)
}

// Do sends a call and waits for its reply. It appends the reply's data to out. A result other than success is
// returned as a cuda.Result.
func (c *Client) Do(h callbuf.Header, payload, out []byte) ([]byte, error) {
	if err := c.failed(h.Context); err != nil {
		return out, err
	}
	r, out, err := c.Call(h, payload, out, c.alive)
	if err == nil && r != 0 {
		err = cuda.Result(r)
	}
	if errors.Is(err, ErrWorkerGone) {
		if poison := c.failed(h.Context); poison != nil {
			err = poison
		}
	}
	return out, err
}

// WorkerPID returns the process that executes this guest's calls.
func (c *Client) WorkerPID() int { return int(c.welcome.WorkerPID) }

// Close releases everything; the worker sees the socket hang up and ends. No other method may be running or
// follow.
func (c *Client) Close() error {
	var err error
	c.close.Do(func() {
		err = c.worker.Close()
		c.arena.drop()
		c.device.drop()
		err = errors.Join(err, callbuf.UnmapParts(c.mem))
	})
	return err
}
