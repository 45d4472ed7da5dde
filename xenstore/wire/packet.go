// Package wire implements the XenStore protocol: packets of a header and a body, the names of errors, permissions,
// and the syntax of paths. Its input are bytes and its output packets; it uses neither sockets nor rings.
//
// Callers: the client (package xenstore) and the server for tests (package xenstore/memory).
//
// Trust boundary: no input is trusted. For any bytes, a Parser returns packets within bounds or fails for good, since
// packet boundaries can't be recovered in a corrupt stream.
//
// The specification is xen/include/public/io/xs_wire.h and docs/misc/xenstore.txt of Xen:
//
//	0   Type, of the request, or Error, or WatchEvent
//	4   ID, chosen by the client, repeated in the answer
//	8   Tx, the transaction, or 0
//	12  number of bytes of the body that follows, 4096 at most
//
// All four are 32 bits in the byte order of the machine that both run on, which is
// little-endian wherever Xen runs.
package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Sizes of a packet.
const (
	HeaderBytes = 16
	// BodyMax is the longest body. A server ends the connection of a client that sends more.
	BodyMax = 4096
)

var le = binary.LittleEndian

// Packet is a request, an answer or an event.
type Packet struct {
	Type Type
	ID   uint32
	Tx   uint32
	Body []byte
}

// Append encodes p after b. A body above BodyMax is our caller's bug.
func (p Packet) Append(b []byte) []byte {
	if len(p.Body) > BodyMax {
		panic(fmt.Sprintf("wire: a body of %d bytes, where %d is the most", len(p.Body), BodyMax))
	}
	b = le.AppendUint32(b, uint32(p.Type))
	b = le.AppendUint32(b, p.ID)
	b = le.AppendUint32(b, p.Tx)
	b = le.AppendUint32(b, uint32(len(p.Body)))
	return append(b, p.Body...)
}

// Parser splits a stream of bytes into packets, however it is cut. Its zero value is ready to use.
type Parser struct {
	held []byte
	err  error
}

// ErrTooLong reports a header that announces more than BodyMax.
var ErrTooLong = errors.New("wire: a body longer than the protocol allows")

// Feed adds received bytes. The caller takes the packets out with Next before it feeds more: remaining bytes are
// held.
func (p *Parser) Feed(b []byte) {
	if p.err == nil {
		p.held = append(p.held, b...)
	}
}

// Need returns how many more bytes the next packet needs: 0 when one is complete, and without a complete header the
// rest of the header.
func (p *Parser) Need() int {
	if len(p.held) < HeaderBytes {
		return HeaderBytes - len(p.held)
	}
	return max(0, HeaderBytes+int(min(le.Uint32(p.held[12:]), BodyMax))-len(p.held))
}

// Next takes out a packet. The caller owns the packet's body. Next returns false without a complete packet; once it
// has failed it keeps failing.
func (p *Parser) Next() (Packet, bool, error) {
	if p.err != nil || len(p.held) < HeaderBytes {
		return Packet{}, false, p.err
	}
	size := le.Uint32(p.held[12:])
	if size > BodyMax {
		p.err = fmt.Errorf("%w: %s of %d bytes", ErrTooLong, Type(le.Uint32(p.held)), size)
		p.held = nil
		return Packet{}, false, p.err
	}
	end := HeaderBytes + int(size)
	if len(p.held) < end {
		return Packet{}, false, nil
	}
	packet := Packet{
		Type: Type(le.Uint32(p.held)),
		ID:   le.Uint32(p.held[4:]),
		Tx:   le.Uint32(p.held[8:]),
		Body: append([]byte(nil), p.held[HeaderBytes:end]...),
	}
	p.held = p.held[:copy(p.held, p.held[end:])]
	return packet, true, nil
}
