package region

import (
	"errors"
	"fmt"

	"pegasus/callbuf"
)

// Kind is the kind of a message. Every message is about one process of the machine; the agent numbers the
// processes and never reuses a number in a session.
type Kind uint16

const (
	Open    Kind = 1 + iota // guest: a process sent Hello
	Need                    // host: its segment must have this many bytes
	Lend                    // guest: the position of the segment
	Welcome                 // host: the answer to its Hello; a refusal ends the process's session
	Data                    // both: data between the process and its worker
	Close                   // guest: the process has hung up
	Gone                    // host: its worker has ended, and its segment is no longer in use
	Grant                   // guest: under Xen, instead of Lend: the segment's pages; see grants.go
	kinds
)

// The names of the kinds, for people.
var kindNames = [kinds]string{"", "open", "need", "lend", "welcome", "data", "close", "gone", "grant"}

func (k Kind) String() string {
	if k == 0 || k >= kinds {
		return fmt.Sprintf("kind %d", uint16(k))
	}
	return kindNames[k]
}

const (
	slotBytes   = 512
	messageHead = 8
	// MaxBody is the limit of a message's body.
	MaxBody = slotBytes - messageHead
	// MaxExtents is the limit of a lent segment's extents.
	MaxExtents = (MaxBody - 8) / 16
	// MaxProcesses is the limit of a machine's processes that its hub serves at once.
	MaxProcesses = 512
	// MaxData is the limit of one Data message between process and worker.
	MaxData = 64
)

// Message is one message, in private memory.
type Message struct {
	Kind    Kind
	Process uint32
	Body    []byte
}

var errMessage = errors.New("region: not a message")

// append encodes m after b.
func (m *Message) append(b []byte) []byte {
	b = le.AppendUint16(b, uint16(m.Kind))
	b = le.AppendUint16(b, uint16(len(m.Body)))
	b = le.AppendUint32(b, m.Process)
	return append(b, m.Body...)
}

// parse decodes a slot. The body lies in b.
func parse(b []byte) (Message, error) {
	if len(b) < messageHead {
		return Message{}, errMessage
	}
	m := Message{Kind: Kind(le.Uint16(b)), Process: le.Uint32(b[4:])}
	n := int(le.Uint16(b[2:]))
	if m.Kind == 0 || m.Kind >= kinds || n > len(b)-messageHead {
		return Message{}, fmt.Errorf("%w: %v of %d bytes", errMessage, m.Kind, n)
	}
	m.Body = b[messageHead : messageHead+n]
	return m, nil
}

// The body of Open is the process's Hello and its number in the machine.

// OpenBody encodes the body of an Open.
func OpenBody(h callbuf.Hello, pid uint32) []byte { return le.AppendUint32(h.Append(nil), pid) }

// ParseOpen decodes the body of an Open.
func ParseOpen(b []byte) (h callbuf.Hello, pid uint32, err error) {
	if len(b) != callbuf.HelloBytes+4 {
		return h, 0, fmt.Errorf("%w: open of %d bytes", errMessage, len(b))
	}
	h, err = callbuf.ParseHello(b[:callbuf.HelloBytes])
	return h, le.Uint32(b[callbuf.HelloBytes:]), err
}

// NeedBody encodes the body of a Need.
func NeedBody(bytes uint64) []byte { return le.AppendUint64(nil, bytes) }

// ParseNeed decodes the body of a Need.
func ParseNeed(b []byte) (uint64, error) {
	if len(b) != 8 {
		return 0, fmt.Errorf("%w: need of %d bytes", errMessage, len(b))
	}
	return le.Uint64(b), nil
}

// LendBody encodes the body of a Lend: the position of a segment in the region. Without extents it means that
// the machine has no room for the segment.
func LendBody(parts callbuf.Extents) ([]byte, error) {
	if len(parts) > MaxExtents {
		return nil, fmt.Errorf("segment in %d pieces: want at most %d", len(parts), MaxExtents)
	}
	b := le.AppendUint64(nil, uint64(len(parts)))
	for _, p := range parts {
		b = le.AppendUint64(le.AppendUint64(b, p.Offset), p.Bytes)
	}
	return b, nil
}

// ParseLend decodes the body of a Lend. The caller must check the extents.
func ParseLend(b []byte) (callbuf.Extents, error) {
	if len(b) < 8 {
		return nil, fmt.Errorf("%w: lend of %d bytes", errMessage, len(b))
	}
	n := le.Uint64(b)
	if n > MaxExtents || uint64(len(b)) != 8+16*n {
		return nil, fmt.Errorf("%w: lend of %d extents in %d bytes", errMessage, n, len(b))
	}
	parts := make(callbuf.Extents, n)
	for i := range parts {
		parts[i] = callbuf.Extent{Offset: le.Uint64(b[8+16*i:]), Bytes: le.Uint64(b[16+16*i:])}
	}
	return parts, nil
}
