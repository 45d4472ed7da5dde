// Package region is the wire format between a virtual machine's agent and its hub
// on the host: how they find each other in the memory that they share, and the
// messages by which the processes of the machine get their segments.
//
// Who calls it: the agent (guest/agent) as Guest, the hub (hypervisor/hub) as Host. It
// is pure but for the words of shared memory that it is handed.
//
// Whom it trusts: nobody across the memory. A Host keeps its indices privately,
// copies a message once and decodes the copy. Whatever a guest writes, it is
// answered with a message within bounds or with an error.
//
// The region is a virtual NVDIMM. Its last page belongs to nobody's file system:
//
//	0x000   Mark, by the host: this is a region of ours, which an agent may format
//	0x008   by the host: not 0 while a hub uses what a Pointer has told it
//	0x200   Pointer, by the guest: where the control area lies, and whose it is
//
// The control area is a file of the machine's root, in one piece:
//
//	0x000   one word per cache line, see below
//	0x1000  Slots × 512 bytes, guest to host
//	        Slots × 512 bytes, host to guest
//
// A session begins when an agent writes a new boot number, with both rings empty.
// The hub ends what the session before had, makes a new generation, and answers by
// writing the boot number into its own word. When the hub is a new one, or the memory came
// from a snapshot, the generation changes under the agent, which then begins again.
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

	// SectorBytes is how much of the last page each side writes.
	SectorBytes = 512
	// PointerOffset is where in it the Pointer lies; the Mark lies at its beginning.
	PointerOffset = 512
)

var le = binary.LittleEndian

// Mark is what the host writes into the last page of a region that it makes.
func Mark() []byte {
	b := make([]byte, SectorBytes)
	le.PutUint64(b, markMagic)
	return b
}

// InUse is where the host's word about the region lies: not 0 while a hub, or a worker,
// uses anything of it. An agent that makes all anew waits until it is 0.
const InUse = 8

// Used reads that word out of the last page's beginning.
func Used(b []byte) bool { return le.Uint64(b[InUse:]) != 0 }

// Marked says whether a page's beginning is a Mark.
func Marked(b []byte) bool { return len(b) >= 8 && le.Uint64(b) == markMagic }

// Pointer is where the control area lies in the region. An agent that makes the file
// system anew takes it away first.
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

// errNoPointer is a sector without a Pointer, as it is before an agent came.
var errNoPointer = errors.New("region: no agent has said where its control area is")

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
		return Pointer{}, errors.New("region: a control area of nobody")
	}
	return p, nil
}
