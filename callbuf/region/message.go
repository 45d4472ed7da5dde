package region

import (
	"errors"
	"fmt"

	"pegasus/callbuf"
)

// Kind is what a message means. Every message is of one process of the machine; the agent numbers them and never uses a number twice in a session.
type Kind uint16

const (
	Open    Kind = 1 + iota // guest: a process said Hello
	Need                    // host: its segment is to have so many bytes
	Lend                    // guest: it lies there
	Welcome                 // host: the answer to its Hello; a refusal ends the process's session
	Data                    // both: what the process and its worker say to each other
	Close                   // guest: the process has hung up
	Gone                    // host: its worker has ended, and nobody uses its segment any more
	Grant                   // guest: under Xen, instead of Lend: it is these pages; see grants.go
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
	// MaxBody is the most that a message carries beside its kind and process.
	MaxBody = slotBytes - messageHead
	// MaxExtents is how many pieces a segment may be lent in.
	MaxExtents = (MaxBody - 8) / 16
	// MaxProcesses is how many processes of a machine its hub serves at once.
	MaxProcesses = 512
	// MaxData is the most that process and worker say to each other at once.
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

// Body of Open: the Hello as the process said it, and its number in the machine.

// OpenBody encodes the body of an Open.
func OpenBody(h callbuf.Hello, pid uint32) []byte { return le.AppendUint32(h.Append(nil), pid) }

// ParseOpen decodes it.
func ParseOpen(b []byte) (h callbuf.Hello, pid uint32, err error) {
	if len(b) != callbuf.HelloBytes+4 {
		return h, 0, fmt.Errorf("%w: open of %d bytes", errMessage, len(b))
	}
	h, err = callbuf.ParseHello(b[:callbuf.HelloBytes])
	return h, le.Uint32(b[callbuf.HelloBytes:]), err
}

// NeedBody encodes the body of a Need.
func NeedBody(bytes uint64) []byte { return le.AppendUint64(nil, bytes) }

// ParseNeed decodes it.
func ParseNeed(b []byte) (uint64, error) {
	if len(b) != 8 {
		return 0, fmt.Errorf("%w: need of %d bytes", errMessage, len(b))
	}
	return le.Uint64(b), nil
}

// LendBody encodes the body of a Lend: where in the region a segment lies. With no
// extents it says that the machine has no room for it.
func LendBody(parts callbuf.Extents) ([]byte, error) {
	if len(parts) > MaxExtents {
		return nil, fmt.Errorf("segment in %d pieces: at most %d can be told", len(parts), MaxExtents)
	}
	b := le.AppendUint64(nil, uint64(len(parts)))
	for _, p := range parts {
		b = le.AppendUint64(le.AppendUint64(b, p.Offset), p.Bytes)
	}
	return b, nil
}

// ParseLend decodes it. What the extents say is still to be checked.
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
