package cuda

import "encoding/binary"

// GraphNode is one node of a graph that OpGraphCreate makes: an operation with the payload of its packet,
// which is carried out when the nodes that it depends on have ended. The worker defines the permitted
// operations; OpNop does nothing.
//
// In the arena a graph is
//
//	u32 version, nodeCount
//	per node: u16 op, u16 0, u32 afterCount, u32 payloadBytes, u32 0
//	          per node that it depends on: u32 its index, less than the node's own
//	          payload
//
// with indices and payload each padded with zeros to a multiple of 8 bytes. So the nodes can be carried out
// in this order, and there are no cycles.
type GraphNode struct {
	Op      Op
	After   []uint32
	Payload []byte
}

// Limits of a graph.
const (
	MaxGraphNodes = 1 << 16
	MaxGraphEdges = 1 << 18
)

const (
	graphVersion    = 1
	graphHeader     = 8
	graphNodeHeader = 16
)

// AppendGraph encodes a graph after b, which ends at a multiple of 8.
func AppendGraph(b []byte, nodes []GraphNode) []byte {
	le := binary.LittleEndian
	b = le.AppendUint32(b, graphVersion)
	b = le.AppendUint32(b, uint32(len(nodes)))
	for _, n := range nodes {
		b = le.AppendUint16(b, uint16(n.Op))
		b = le.AppendUint16(b, 0)
		b = le.AppendUint32(b, uint32(len(n.After)))
		b = le.AppendUint32(b, uint32(len(n.Payload)))
		b = le.AppendUint32(b, 0)
		for _, i := range n.After {
			b = le.AppendUint32(b, i)
		}
		b = append(b, make([]byte, pad8(len(n.After)*4))...)
		b = append(b, n.Payload...)
		b = append(b, make([]byte, pad8(len(n.Payload)))...)
	}
	return b
}

// pad8 returns the padding of n to a multiple of 8.
func pad8(n int) int { return -n & 7 }

// DecodeGraph decodes a graph from b. Payloads alias b. It returns false unless b is exactly one graph, of a
// permitted size, in which each node depends on earlier ones only.
func DecodeGraph(b []byte) (nodes []GraphNode, ok bool) {
	le := binary.LittleEndian
	if len(b) < graphHeader || le.Uint32(b) != graphVersion {
		return nil, false
	}
	count := int(le.Uint32(b[4:]))
	b = b[graphHeader:]
	if count > MaxGraphNodes || count > len(b)/graphNodeHeader {
		return nil, false
	}
	nodes = make([]GraphNode, count)
	room := MaxGraphEdges
	for i := range nodes {
		if b, ok = nodes[i].decode(b, i, &room); !ok {
			return nil, false
		}
	}
	return nodes, len(b) == 0
}

// decode decodes the node of that index, and returns the rest of b.
func (n *GraphNode) decode(b []byte, place int, room *int) (rest []byte, ok bool) {
	le := binary.LittleEndian
	if len(b) < graphNodeHeader {
		return nil, false
	}
	n.Op = Op(le.Uint16(b))
	after, payload := int(le.Uint32(b[4:])), int(le.Uint32(b[8:]))
	if le.Uint16(b[2:]) != 0 || le.Uint32(b[12:]) != 0 {
		return nil, false
	}
	b = b[graphNodeHeader:]
	if after > *room || payload > len(b) {
		return nil, false
	}
	*room -= after
	places := after*4 + pad8(after*4)
	whole := places + payload + pad8(payload)
	if whole > len(b) {
		return nil, false
	}
	n.After = make([]uint32, after)
	for i := range n.After {
		if n.After[i] = le.Uint32(b[4*i:]); int64(n.After[i]) >= int64(place) {
			return nil, false
		}
	}
	n.Payload = b[places : places+payload : places+payload]
	return b[whole:], true
}
