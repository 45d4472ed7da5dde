package libvirt

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"time"

	"github.com/digitalocean/go-qemu/qmp"
)

// QueryThreads returns the thread IDs of the vCPUs of a machine, by QEMU's monitor command
// query-cpus-fast, which the libvirtd behind a socket passes on. The connection and the goroutines that
// belong to the call end with it, which is at the end of ctx at the latest: bytes that trickle in don't
// extend that time.
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

// monitorCommand returns QEMU's answer to a command. Closing conn ends what the client has left.
func monitorCommand(conn net.Conn, machine, command string) ([]byte, error) {
	m := qmp.NewLibvirtRPCMonitor(machine, &ending{Conn: conn})
	if err := m.Connect(); err != nil {
		return nil, err
	}
	return m.Run([]byte(command))
}

// ending is a connection that closes for its client, go-libvirt, too: go-libvirt reads on for ever after a deadline,
// and allocates any packet length.
type ending struct {
	net.Conn
	word []byte // the unread part of a packet's length field,
	rest uint32 // and the unread bytes of the packet
}

// Limits of a packet's length: its header with the length, and libvirt's maximum.
const (
	leastPacket = 28
	mostPacket  = 32 << 20
)

func (e *ending) Read(p []byte) (int, error) {
	if e.rest == 0 {
		word := make([]byte, 4)
		if _, err := io.ReadFull(e.Conn, word); err != nil {
			return 0, io.EOF
		}
		if e.rest = binary.BigEndian.Uint32(word); e.rest < leastPacket || e.rest > mostPacket {
			return 0, io.EOF
		}
		e.word = word
	}
	if len(e.word) > 0 {
		n := copy(p, e.word)
		e.word = e.word[n:]
		e.rest -= uint32(n)
		return n, nil
	}
	n, err := e.Conn.Read(p[:min(len(p), int(e.rest))])
	e.rest -= uint32(n)
	if err != nil {
		err = io.EOF
	}
	return n, err
}
