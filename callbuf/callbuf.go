// Package callbuf is the wire format between one guest process and its worker on the host: a segment of
// shared memory with a header, one bounded multi-producer ring of call packets, reply slots, completion words
// and an arena for bulk data. It deals with offsets and indices and is independent of CUDA.
//
// Callers: the worker (Host), the Go frontend (Guest), and the programs that make segments. The C library in
// guest/libcuda uses the same format; both are tested against the golden files in testdata.
//
// Trust boundary: the shared memory; neither side trusts the other. A Host keeps its layout privately, reads
// every shared word at most once into private memory, checks it there and uses the copy. Whatever a guest
// writes, a Host returns a packet that is within bounds, or an error after which the segment is to be
// dropped.
//
//	0x000            header, one page: constants, then one mutable word per cache line
//	RingOffset       RingSlots × 128 bytes
//	ReplyOffset      ReplySlots × 256 bytes
//	EventOffset      EventWords × 16 bytes: serial of the last completed record, and the waiting thread
//	ReleaseOffset    ReleaseWords × 4 bytes: 1 when a staging block was read
//	ArenaOffset      ArenaBytes, 2 MiB aligned
//
// A packet takes one or more consecutive slots. Each slot is a sequence word of 8 bytes and 120 bytes of
// body; the concatenated bodies are a 24-byte header and the payload, which therefore starts 8-byte aligned.
// A slot with free-running index i is published by storing i+1 in its sequence word: the continuation slots
// first, the packet's first slot last. The ring's order is the total order of the process's calls. One packet
// at a time may be put beside the ring, where the host finds it also while it can't take the packets that
// fill the ring.
package callbuf

import (
	"errors"
	"fmt"
)

const (
	// Magic begins every segment: the bytes "PEGASU1\0".
	Magic = 0x0031_5553_4147_4550
	// Version of the layout; a guest refuses any other.
	Version = 2
	// HeaderBytes is the size of the header page.
	HeaderBytes = 4096

	SlotBytes    = 128
	slotBody     = SlotBytes - 8
	packetHeader = 24
	firstPayload = slotBody - packetHeader
	lineBody     = 64 - 8 // the part of a slot's body in its first cache line
	// MaxPacketSlots is the size of a launch with 32764 bytes of parameters, the CUDA limit of a kernel.
	MaxPacketSlots = 274
	// plainPacketSlots is the limit of a packet to a host that does not announce one.
	plainPacketSlots = 64
	// MaxPayload is the limit of one packet's payload, in a ring of 2*MaxPacketSlots or more.
	MaxPayload = firstPayload + (MaxPacketSlots-1)*slotBody

	ReplyBytes   = 256
	replyHeader  = 16
	MaxReplyData = ReplyBytes - replyHeader

	eventBytes = 16

	// MaxContexts bounds context ids; id 0 stands for no context.
	MaxContexts = 256
)

// Offsets of the header's words.
const (
	offMagic            = 0x000
	offVersion          = 0x008
	offHeaderBytes      = 0x00c
	offFeatures         = 0x010
	offGeneration       = 0x018
	offSegmentBytes     = 0x020
	offRingOffset       = 0x028
	offRingSlots        = 0x02c
	offReplyOffset      = 0x030
	offReplySlots       = 0x034
	offEventOffset      = 0x038
	offEventWords       = 0x03c
	offReleaseOffset    = 0x040
	offReleaseWords     = 0x044
	offArenaOffset      = 0x048
	offArenaBytes       = 0x050
	offProcessPoison    = 0x080
	offTail             = 0x0c0
	offHead             = 0x100
	offPollerParked     = 0x140
	offProducersWaiting = 0x180
	offSpin             = 0x1c0
	offContextPoison    = 0x200
	offContextOwes      = 0x600
	offContextText      = 0xa00
	offHeld             = 0xe00
	offReportTaken      = 0xe40
	offPacketSlots      = 0xe44
	offReport           = 0xe80
	offReportBody       = 0xec0
	offWordsWait        = 0xf00
	offWords            = 0xf04
)

// States of the packet beside the ring, in offReport. The zero of a fresh segment is a guest that does not
// support it.
const (
	reportNone = 1 // the guest supports it; no packet waits
	reportMade = 2 // a packet is in offReportBody, until the host sets reportNone

	reportBytes = 64 // the limit of such a packet
)

// Geometry is the variable part of a segment's layout.
type Geometry struct {
	RingSlots    uint32 // power of two, at least 128; a packet takes half of them at most
	ReplySlots   uint32 // at most 65536
	EventWords   uint32 // power of two
	ReleaseWords uint32
	ArenaBytes   uint64 // multiple of 4096
}

// DefaultGeometry suits a process with hundreds of threads. Its memory is committed only as it is touched.
func DefaultGeometry() Geometry {
	return Geometry{RingSlots: 4096, ReplySlots: 1024, EventWords: 65536, ReleaseWords: 4096, ArenaBytes: 256 << 20}
}

// Layout is a Geometry with its computed offsets.
type Layout struct {
	Geometry
	RingOffset, ReplyOffset    uint32
	EventOffset, ReleaseOffset uint32
	ArenaOffset, SegmentBytes  uint64
}

const (
	pageBytes  = 4096
	arenaAlign = 2 << 20
	maxArena   = 1 << 40
)

// packetSlots returns the limit of one packet's slots in the ring.
func (g Geometry) packetSlots() uint32 { return min(MaxPacketSlots, g.RingSlots/2) }

func powerOfTwo(n uint32) bool { return n != 0 && n&(n-1) == 0 }

func alignUp(n, to uint64) uint64 { return (n + to - 1) &^ (to - 1) }

// Layout places the parts one after the other, or returns an error that names the wrong number.
func (g Geometry) Layout() (Layout, error) {
	switch {
	case !powerOfTwo(g.RingSlots) || g.RingSlots < 2*plainPacketSlots || g.RingSlots > 1<<20:
		return Layout{}, fmt.Errorf("ring slots %d: want a power of two in %d..%d", g.RingSlots, 2*plainPacketSlots, 1<<20)
	case g.ReplySlots == 0 || g.ReplySlots > 65536:
		return Layout{}, fmt.Errorf("reply slots %d: want 1..65536", g.ReplySlots)
	case !powerOfTwo(g.EventWords) || g.EventWords > 1<<24:
		return Layout{}, fmt.Errorf("event words %d: want a power of two up to %d", g.EventWords, 1<<24)
	case g.ReleaseWords == 0 || g.ReleaseWords > 1<<20:
		return Layout{}, fmt.Errorf("release words %d: want 1..%d", g.ReleaseWords, 1<<20)
	case g.ArenaBytes%pageBytes != 0 || g.ArenaBytes > maxArena:
		return Layout{}, fmt.Errorf("arena of %d bytes: want a multiple of %d up to %d", g.ArenaBytes, pageBytes, uint64(maxArena))
	}
	l := Layout{Geometry: g}
	at := uint64(HeaderBytes)
	place := func(bytes uint64) uint32 {
		o := at
		at = alignUp(at+bytes, pageBytes)
		return uint32(o)
	}
	l.RingOffset = place(uint64(g.RingSlots) * SlotBytes)
	l.ReplyOffset = place(uint64(g.ReplySlots) * ReplyBytes)
	l.EventOffset = place(uint64(g.EventWords) * eventBytes)
	l.ReleaseOffset = place(uint64(g.ReleaseWords) * 4)
	l.ArenaOffset = alignUp(at, arenaAlign)
	l.SegmentBytes = l.ArenaOffset + g.ArenaBytes
	return l, nil
}

// Header begins every packet.
type Header struct {
	Op        uint16
	Flags     uint16
	ReplySlot uint16
	ReplyTag  uint32
	Context   uint32
	Stream    uint64
}

// FlagReply marks a packet with a caller that waits in ReplySlot for ReplyTag.
const FlagReply = 1

// Packet is one call, in private memory. Payload aliases the Packet.
type Packet struct {
	Header
	Payload []byte
	Beside  bool // it came beside the ring, and so out of order
	body    [MaxPacketSlots * slotBody]byte
}

// slotsFor returns the number of slots for a payload of n bytes.
func slotsFor(n int) uint32 {
	if n <= firstPayload {
		return 1
	}
	return 1 + uint32((n-firstPayload+slotBody-1)/slotBody)
}

var (
	// ErrProtocol is wrapped by every error that calls for dropping the segment.
	ErrProtocol = errors.New("call buffer: guest broke the protocol")
	// ErrTooLarge is returned for a payload above the host's limit, which is MaxPayload at most.
	ErrTooLarge = errors.New("call buffer: payload too large for a packet")
	// ErrBesideTaken is returned for a packet beside the ring while the host has not taken the last one.
	ErrBesideTaken = errors.New("call buffer: the place beside the ring is taken")
	// ErrLayout is returned for a segment header that does not describe a segment.
	ErrLayout = errors.New("call buffer: not a segment of this version")
)
