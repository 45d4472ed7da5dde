package libvirt

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// Programs and procedures of libvirt's remote protocol, as far as QueryThreads calls them.
const (
	remoteProgram = 0x20008086
	qemuProgram   = 0x20008087
	protocol      = 1 // version of both programs

	procConnectOpen  = 1  // of remoteProgram
	procLookupByName = 23 // of remoteProgram
	procAuthList     = 66 // of remoteProgram
	procAuthPolkit   = 70 // of remoteProgram
	procMonitor      = 1  // of qemuProgram
)

// Fields of a packet's header.
const (
	typeCall    = 0
	typeReply   = 1
	statusError = 1
	authPolkit  = 2

	headerBytes = 28 // with the length
	maxPacket   = 4 << 20
)

// QueryThreads returns the thread IDs of the vCPUs of a machine, by QEMU's monitor command
// query-cpus-fast, which the libvirtd behind a socket passes on. The connection and the goroutines that
// belong to the call end with it, which is at the end of ctx at the latest: bytes that trickle in don't
// extend that time. The client of the C library isn't used because its calls can't be ended.
func QueryThreads(ctx context.Context, socket, machine string) ([]int, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })()
	out, err := monitorCommand(conn, machine, `{"execute":"query-cpus-fast"}`)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, err
	}
	return ParseThreads(out)
}

// monitorCommand returns QEMU's answer to a command.
func monitorCommand(conn io.ReadWriter, machine, command string) ([]byte, error) {
	c := &rpc{conn: conn}
	kinds, err := c.call(remoteProgram, procAuthList, nil)
	if err != nil {
		return nil, err
	}
	if len(kinds) == 8 && binary.BigEndian.Uint32(kinds[4:]) == authPolkit {
		if _, err := c.call(remoteProgram, procAuthPolkit, nil); err != nil {
			return nil, err
		}
	}
	open := binary.BigEndian.AppendUint32(nil, 1) // a name follows
	open = binary.BigEndian.AppendUint32(appendText(open, "qemu:///system"), 0)
	if _, err := c.call(remoteProgram, procConnectOpen, open); err != nil {
		return nil, err
	}
	domain, err := c.call(remoteProgram, procLookupByName, appendText(nil, machine))
	if err != nil {
		return nil, err
	}
	out, err := c.call(qemuProgram, procMonitor, binary.BigEndian.AppendUint32(appendText(domain, command), 0))
	if err != nil {
		return nil, err
	}
	text, _, err := cutText(out)
	return text, err
}

// rpc is a client of libvirt's remote protocol that has one call at a time.
type rpc struct {
	conn   io.ReadWriter
	serial uint32
}

var errPacket = errors.New("libvirtd's answer is malformed")

// call returns the body of the reply.
func (c *rpc) call(program, procedure uint32, body []byte) ([]byte, error) {
	c.serial++
	packet := make([]byte, 0, headerBytes+len(body))
	for _, n := range []uint32{uint32(headerBytes + len(body)), program, protocol, procedure, typeCall, c.serial, 0} {
		packet = binary.BigEndian.AppendUint32(packet, n)
	}
	if _, err := c.conn.Write(append(packet, body...)); err != nil {
		return nil, err
	}
	for {
		var header [headerBytes]byte
		if _, err := io.ReadFull(c.conn, header[:]); err != nil {
			return nil, err
		}
		field := func(i int) uint32 { return binary.BigEndian.Uint32(header[4*i:]) }
		bytes := field(0)
		if bytes < headerBytes || bytes > maxPacket {
			return nil, errPacket
		}
		reply := make([]byte, bytes-headerBytes)
		if _, err := io.ReadFull(c.conn, reply); err != nil {
			return nil, err
		}
		switch {
		case field(1) != program || field(4) != typeReply || field(5) != c.serial:
			continue // an event, or a keepalive message
		case field(6) == statusError:
			return nil, remoteError(reply)
		}
		return reply, nil
	}
}

// remoteError is the error of a reply: a code, its domain, and a text that may be missing.
func remoteError(body []byte) error {
	if len(body) >= 12 && binary.BigEndian.Uint32(body[8:]) == 1 {
		if text, _, err := cutText(body[12:]); err == nil {
			return errors.New(string(text))
		}
	}
	return fmt.Errorf("libvirtd returned an error without a text")
}

// appendText appends a string in XDR: its length, its bytes, and zeros up to a multiple of four.
func appendText(b []byte, s string) []byte {
	b = append(binary.BigEndian.AppendUint32(b, uint32(len(s))), s...)
	return append(b, make([]byte, -len(s)&3)...)
}

// cutText returns the string in XDR with which bytes begin.
func cutText(b []byte) (text, rest []byte, err error) {
	if len(b) < 4 {
		return nil, nil, errPacket
	}
	n := uint64(binary.BigEndian.Uint32(b))
	if uint64(len(b)-4) < n {
		return nil, nil, errPacket
	}
	padded := min(n+(-n&3), uint64(len(b)-4))
	return bytes.TrimRight(b[4:4+n], "\x00"), b[4+padded:], nil
}
