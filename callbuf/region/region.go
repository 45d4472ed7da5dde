// Package region is the wire format between a virtual machine's agent and its hub on the host: how they find
// each other in the memory that they share, and the messages by which the processes of the machine get their
// segments.
//
// Callers: the agent (guest/agent) as Guest, the hub (hypervisor/hub) as Host. The package is pure except for
// the words of shared memory that it is given.
//
// Trust boundary: the shared memory; neither side trusts the other. A Host keeps its indices privately,
// copies a message once and decodes the copy. Whatever a guest writes, the result is a message within bounds
// or an error.
//
// The region is a virtual NVDIMM. Its last page belongs to no file system:
//
//	0x000   Mark, by the host: this is a region of ours, which an agent may format
//	0x008   by the host: not 0 while a hub uses the memory that a Pointer refers to
//	0x200   Pointer, by the guest: offset and boot number of the control area
//
// The control area is a file of the machine's root, in one piece:
//
//	0x000   one word per cache line, see below
//	0x1000  Slots × 512 bytes, guest to host
//	        Slots × 512 bytes, host to guest
//
// A session begins when an agent writes a new boot number, with both rings empty. The hub ends the processes
// of the session before, makes a new generation, and answers by writing the boot number into its own word.
// When the hub is a new one, or the memory came from a snapshot, the generation changes under the agent,
// which then begins again.
package region

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// PageBytes is the page at a region's end.
const PageBytes = 4096

const (
	markMagic    = 0x314e_4745_5247_4550 // "PEGREGN1"
	pointerMagic = 0x314c_5443_5f47_4550 // "PEG_CTL1"

	// SectorBytes is the part of the last page that each side writes.
	SectorBytes = 512
	// PointerOffset is the offset of the Pointer in it; the Mark is at its beginning.
	PointerOffset = 512
)

var le = binary.LittleEndian

// Mark returns the sector that the host writes into the last page of a region that it makes.
func Mark() []byte {
	b := make([]byte, SectorBytes)
	le.PutUint64(b, markMagic)
	return b
}

// InUse is the offset of the host's in-use word: not 0 while a hub, or a worker, uses any part of the region.
// An agent that formats the region anew waits until it is 0.
const InUse = 8

// Used reports whether that word is set; b is the last page's beginning.
func Used(b []byte) bool { return le.Uint64(b[InUse:]) != 0 }

// Marked reports whether a page's beginning is a Mark.
func Marked(b []byte) bool { return len(b) >= 8 && le.Uint64(b) == markMagic }

// Pointer is the position of the control area in the region. An agent that makes the file system anew removes
// it first.
type Pointer struct {
	Offset uint64
	Boot   uint64 // the first session of the agent that made the area; never 0
}

// Append encodes p after b, as a sector.
func (p Pointer) Append(b []byte) []byte {
	from := len(b)
	b = le.AppendUint64(b, pointerMagic)
	b = le.AppendUint64(b, p.Offset)
	b = le.AppendUint64(b, p.Boot)
	b = le.AppendUint32(b, crc32.ChecksumIEEE(b[from:]))
	return append(b, make([]byte, SectorBytes-len(b)+from)...)
}

// errNoPointer is returned for a sector without a Pointer, as it is before the first agent.
var errNoPointer = errors.New("region: no pointer to an agent's control area")

// ParsePointer decodes a Pointer, and refuses one that points out of a region of that size.
func ParsePointer(b []byte, regionBytes uint64) (Pointer, error) {
	if len(b) < 28 || le.Uint64(b) != pointerMagic || le.Uint32(b[24:]) != crc32.ChecksumIEEE(b[:24]) {
		return Pointer{}, errNoPointer
	}
	p := Pointer{Offset: le.Uint64(b[8:]), Boot: le.Uint64(b[16:])}
	switch {
	case p.Offset%PageBytes != 0 || p.Offset > regionBytes || regionBytes-p.Offset < ControlBytes+PageBytes:
		return Pointer{}, fmt.Errorf("region: control area at %d, in a region of %d bytes", p.Offset, regionBytes)
	case p.Boot == 0:
		return Pointer{}, errors.New("region: control area with a zero boot id")
	}
	return p, nil
}
