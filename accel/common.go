package accel

import (
	"os"

	"pegasus/cuda"
)

// Common is memory that the processes of a domain share, where devices have memory of their own: who has it attached holds it, and
// gives it to others of the domain. While nobody holds it its bytes are in a part of a file.
type Common struct {
	ID     uint32 // the domain's name for it
	Tag    uint64 // by which processes ask each other for it
	Bytes  uint64
	File   *os.File // stays the caller's
	Offset uint64
	Holding
}

// Holding is what the processes of a domain know together of a Common.
type Holding interface {
	// Claim has no other process begin or end to hold it, until Yield. It waits for one that does, for a bounded time; less if
	// this one is ending, unless it leaves.
	Claim(leaves bool) cuda.Result
	Yield()
	// Holders is where to ask for it: the ID of the Tickets of all others that hold it.
	Holders() []uint32
	// Hold notes that this process holds it, whose Tickets have that ID. From then on its bytes are not in the file.
	Hold(id uint32)
	// Leave notes that it holds it no longer; stored: its bytes are in the file, all of them.
	Leave(stored bool)
	// Stored says whether they are. If not, and nobody holds it, they are lost.
	Stored() bool
	// Clear makes the part of the file zeros.
	Clear() error
	// Wanted says whether anybody will look at its bytes, if this process doesn't.
	Wanted() bool
	// Used tells of the time that copying its bytes took.
	Used(u Usage)
}

// Keeper is the optional ability of a Device to have Commons.
type Keeper interface {
	// CommonUnit is in what multiples they take memory; 0 if the device can't have any after all.
	CommonUnit() uint64
	// Keep stores what this process alone holds, though work may still run that uses it: the process is about to end. It may
	// block for as long as copying takes.
	Keep()
}

// Holder is the optional ability of a Context of a Keeper to use them.
type Holder interface {
	// AttachCommon makes one accessible to the context, and returns where. It may block while other processes begin or end to
	// hold it, and for as long as copying its bytes takes. It counts already.
	AttachCommon(c Common) (addr uint64, r cuda.Result)
	// Detach ends that once all work submitted before has ended, then calls done. The end of the context does so, too.
	Detach(addr uint64, done func()) cuda.Result
}
