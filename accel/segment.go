package accel

import (
	"os"

	"pegasus/cuda"
)

// DeviceSegment is device memory that the processes of a domain share, on a device with PeerSharing. A process that
// attached it holds it on the device and exports it to the domain's other processes. While no process holds it, its
// bytes are stored in a part of a file.
type DeviceSegment struct {
	ID     uint32 // identifies it in the domain
	Tag    uint64 // identifies it in requests between processes
	Bytes  uint64
	File   *os.File // owned by the caller
	Offset uint64
	SegmentState
}

// SegmentState is the state of a DeviceSegment that the processes of a domain share.
type SegmentState interface {
	// Claim keeps other processes from beginning or ending to hold the segment, until Yield. It blocks for a bounded
	// time while another process has the claim; for less if this process is ending, unless leaves is set.
	Claim(leaves bool) cuda.Result
	Yield()
	// Holders returns the processes to request the segment from: the ID of the ShareTokens of each other process that
	// holds it.
	Holders() []uint32
	// Hold records that this process holds the segment and that its ShareTokens have that ID. From then on the file no
	// longer has its bytes.
	Hold(id uint32)
	// Leave records that this process no longer holds the segment; stored: the file has all of its bytes.
	Leave(stored bool)
	// Stored reports whether the file has the bytes. If not, and no process holds the segment, they are lost.
	Stored() bool
	// Clear zeroes the part of the file.
	Clear() error
	// Wanted reports whether a process other than this one may still read the bytes.
	Wanted() bool
	// Used accounts for the time that copying the bytes took.
	Used(u Usage)
}
