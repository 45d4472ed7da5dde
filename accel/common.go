package accel

import (
	"os"

	"pegasus/cuda"
)

// Common is memory that the processes of a domain share, on devices with memory of their own. A process that attached
// it holds it on the device and exports it to the domain's other processes. While no process holds it, its bytes are
// stored in a part of a file.
type Common struct {
	ID     uint32 // identifies it in the domain
	Tag    uint64 // identifies it in requests between processes
	Bytes  uint64
	File   *os.File // owned by the caller
	Offset uint64
	Holding
}

// Holding is the state of a Common that the processes of a domain share.
type Holding interface {
	// Claim keeps other processes from beginning or ending to hold the Common, until Yield. It blocks for a bounded
	// time while another process has the claim; for less if this process is ending, unless leaves is set.
	Claim(leaves bool) cuda.Result
	Yield()
	// Holders returns the processes to request the Common from: the ID of the Tickets of each other process that holds
	// it.
	Holders() []uint32
	// Hold records that this process holds the Common and that its Tickets have that ID. From then on the file no
	// longer has its bytes.
	Hold(id uint32)
	// Leave records that this process no longer holds the Common; stored: the file has all of its bytes.
	Leave(stored bool)
	// Stored reports whether the file has the bytes. If not, and no process holds the Common, they are lost.
	Stored() bool
	// Clear zeroes the part of the file.
	Clear() error
	// Wanted reports whether a process other than this one may still read the bytes.
	Wanted() bool
	// Used accounts for the time that copying the bytes took.
	Used(u Usage)
}

// Keeper is the optional ability of a Device to support Commons.
type Keeper interface {
	// CommonUnit returns the allocation granularity of Commons in bytes; 0 if the device does not support them.
	CommonUnit() uint64
	// Keep stores the Commons that this process alone holds, although running work may still use them: the process is
	// about to end. It may block for as long as copying takes.
	Keep()
}

// Holder is the optional ability of a Context of a Keeper to use Commons.
type Holder interface {
	// AttachCommon makes a Common accessible to the context and returns its address. It may block while other processes
	// begin or end to hold it, and for as long as copying its bytes takes. The Common is accounted for already.
	AttachCommon(c Common) (addr uint64, r cuda.Result)
	// Detach removes the attachment once all work submitted earlier has ended, then calls done. Destroying the context
	// detaches, too.
	Detach(addr uint64, done func()) cuda.Result
}
