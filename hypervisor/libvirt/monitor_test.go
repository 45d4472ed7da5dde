package libvirt

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Programs and procedures of libvirt's remote protocol that the client calls, and fields of packets.
const (
	remoteProgram = 0x20008086
	qemuProgram   = 0x20008087

	procConnectOpen  = 1  // of remoteProgram
	procLookupByName = 23 // of remoteProgram
	procAuthList     = 66 // of remoteProgram
	procAuthPolkit   = 70 // of remoteProgram
	procMonitor      = 1  // of qemuProgram

	typeReply   = 1
	statusError = 1
	authPolkit  = 2
	headerBytes = 28 // with the length
)

// libvirtd is a fake that answers a call by a function of the connection.
type libvirtd func(c *net.UnixConn, program, procedure, serial uint32, body []byte) bool

// serve serves the fake on a socket for the length of a test.
func (l libvirtd) serve(t *testing.T) (socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "libvirt-sock")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			c, err := listener.AcceptUnix()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				for {
					var header [headerBytes]byte
					if _, err := io.ReadFull(c, header[:]); err != nil {
						return
					}
					field := func(i int) uint32 { return binary.BigEndian.Uint32(header[4*i:]) }
					body := make([]byte, field(0)-headerBytes)
					if _, err := io.ReadFull(c, body); err != nil || !l(c, field(1), field(3), field(5), body) {
						return
					}
				}
			}()
		}
	}()
	return socket
}

// resets returns the socket of a peer that closes connections with unread bytes.
func resets(t *testing.T) (socket string) {
	socket = filepath.Join(t.TempDir(), "libvirt-sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			c.Read(make([]byte, 1))
			c.Close()
		}
	}()
	return socket
}

func packet(program, procedure, kind, serial, status uint32, body []byte) []byte {
	var b []byte
	for _, n := range []uint32{uint32(headerBytes + len(body)), program, 1, procedure, kind, serial, status} {
		b = binary.BigEndian.AppendUint32(b, n)
	}
	return append(b, body...)
}

const twoCPUs = `{"return":[{"cpu-index":0,"thread-id":71},{"cpu-index":1,"thread-id":72}],"id":"libvirt-9"}`

// answers returns the answers of a libvirtd with a machine called web and a working QEMU.
func answers(program, procedure, serial uint32, body []byte) []byte {
	reply := func(b []byte) []byte { return packet(program, procedure, typeReply, serial, 0, b) }
	switch {
	case program == remoteProgram && procedure == procAuthList:
		return reply([]byte{0, 0, 0, 1, 0, 0, 0, authPolkit})
	case program == remoteProgram && procedure == procAuthPolkit:
		return reply([]byte{0, 0, 0, 1})
	case program == remoteProgram && procedure == procConnectOpen:
		ping := packet(0x6b656570, 1, 2, 0, 0, nil) // keepalive
		return append(ping, reply(nil)...)
	case program == remoteProgram && procedure == procLookupByName:
		name, _, err := cutText(body)
		if err != nil || string(name) != "web" {
			text := appendText([]byte{0, 0, 0, 42, 0, 0, 0, 10, 0, 0, 0, 1}, "Domain not found")
			text = append(text, 0, 0, 0, 2) // an error's level
			return packet(program, procedure, typeReply, serial, statusError, text)
		}
		return reply(append(appendText(nil, "web"), make([]byte, 16+4)...))
	case program == qemuProgram && procedure == procMonitor:
		_, rest, err := cutText(body)
		if err == nil && len(rest) > 20 {
			if command, _, err := cutText(rest[20:]); err == nil && strings.Contains(string(command), "query-cpus-fast") {
				return reply(appendText(nil, twoCPUs))
			}
		}
	}
	return packet(program, procedure, typeReply, serial, statusError, nil)
}

// appendText appends a string in XDR: its length, its bytes, and zeros up to a multiple of four.
func appendText(b []byte, s string) []byte {
	b = append(binary.BigEndian.AppendUint32(b, uint32(len(s))), s...)
	return append(b, make([]byte, -len(s)&3)...)
}

// cutText returns the string in XDR with which bytes begin.
func cutText(b []byte) (text, rest []byte, err error) {
	if len(b) < 4 {
		return nil, nil, io.ErrUnexpectedEOF
	}
	n := uint64(binary.BigEndian.Uint32(b))
	if uint64(len(b)-4) < n {
		return nil, nil, io.ErrUnexpectedEOF
	}
	return b[4 : 4+n], b[4+min(n+(-n&3), uint64(len(b)-4)):], nil
}

func spent(t *testing.T) time.Duration {
	t.Helper()
	var r unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &r); err != nil {
		t.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// A query ends by the end of its time, with a peer that hangs, trickles, resets or sends nonsense at any point
// of the conversation. Meanwhile it costs next to no processor time, and afterwards no goroutine is left.
func TestQueryThreads(t *testing.T) {
	whole := libvirtd(func(c *net.UnixConn, program, procedure, serial uint32, body []byte) bool {
		_, err := c.Write(answers(program, procedure, serial, body))
		return err == nil
	})
	if got, err := QueryThreads(t.Context(), whole.serve(t), "web"); err != nil || !slices.Equal(got, []int{71, 72}) {
		t.Fatalf("%v, %v", got, err)
	}
	if _, err := QueryThreads(t.Context(), whole.serve(t), "other"); err == nil || err.Error() != "Domain not found" {
		t.Errorf("a machine that isn't there: %v", err)
	}
	if _, err := QueryThreads(t.Context(), filepath.Join(t.TempDir(), "none"), "web"); !errors.Is(err, unix.ENOENT) {
		t.Errorf("no libvirtd: %v", err)
	}
	if _, err := QueryThreads(t.Context(), resets(t), "web"); err == nil {
		t.Error("a peer that resets the connection has answered")
	}
	late := errors.New("too late")
	for what, c := range map[string]struct {
		misbehaves func(c *net.UnixConn, reply []byte) bool
		want       error // nil: any
	}{
		"hangs": {func(c *net.UnixConn, _ []byte) bool { io.Copy(io.Discard, c); return false }, late},
		"hangs within a packet": {func(c *net.UnixConn, reply []byte) bool {
			c.Write(reply[:len(reply)-1])
			io.Copy(io.Discard, c)
			return false
		}, late},
		"trickles": {func(c *net.UnixConn, reply []byte) bool {
			for _, b := range append(reply[:3:3], 255) { // a packet of 255 bytes, without an end in time
				c.Write([]byte{b})
			}
			for {
				if _, err := c.Write([]byte{0}); err != nil {
					return false
				}
				time.Sleep(5 * time.Millisecond)
			}
		}, late},
		"sends events without end": {func(c *net.UnixConn, _ []byte) bool {
			for {
				if _, err := c.Write(packet(0x6b656570, 1, 2, 0, 0, nil)); err != nil {
					return false
				}
				time.Sleep(5 * time.Millisecond)
			}
		}, late},
		"resets":               {func(c *net.UnixConn, _ []byte) bool { return false }, nil},
		"ends within a packet": {func(c *net.UnixConn, reply []byte) bool { c.Write(reply[:5]); return false }, nil},
		"sends a packet too small": {func(c *net.UnixConn, _ []byte) bool {
			c.Write(make([]byte, headerBytes))
			return true
		}, nil},
		"sends a packet too large": {func(c *net.UnixConn, reply []byte) bool {
			c.Write(append([]byte{255, 255, 255, 255}, reply[4:]...))
			return true
		}, nil},
	} {
		steps := []uint32{procAuthList, procConnectOpen, procLookupByName, procMonitor | qemuProgram}
		if raced { // go-libvirt has a race on an unused channel of its own if its connection ends while it connects
			steps = steps[2:]
		}
		for _, at := range steps {
			socket := libvirtd(func(conn *net.UnixConn, program, procedure, serial uint32, body []byte) bool {
				reply := answers(program, procedure, serial, body)
				if program == qemuProgram {
					procedure |= qemuProgram
				}
				if procedure == at {
					return c.misbehaves(conn, reply)
				}
				_, err := conn.Write(reply)
				return err == nil
			}).serve(t)
			const patience = 150 * time.Millisecond
			ctx, cancel := context.WithTimeoutCause(t.Context(), patience, late)
			start, cpu := time.Now(), spent(t)
			got, err := QueryThreads(ctx, socket, "web")
			cancel()
			if err == nil || c.want != nil && !errors.Is(err, c.want) {
				t.Errorf("%s at %#x: got %v, %v, want %v", what, at, got, err, c.want)
			}
			if d := time.Since(start); d > 20*time.Second {
				t.Errorf("%s at %#x: it took %v", what, at, d)
			}
			if d := spent(t) - cpu; d > patience/2 && c.want == late {
				t.Errorf("%s at %#x: %v of processor time in %v", what, at, d, patience)
			}
		}
	}
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		all := make([]byte, 1<<20)
		all = all[:runtime.Stack(all, true)]
		if !strings.Contains(string(all), "libvirt.QueryThreads") && !strings.Contains(string(all), "go-libvirt") {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("goroutines are left:\n%s", all)
		}
	}
}
