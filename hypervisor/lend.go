package hypervisor

import (
	"os"

	"pegasus/callbuf"
)

// Lender is a Newcomer whose segment doesn't come from the daemon: it speaks for a
// process of a virtual machine, and lends a part of the memory that it shares with
// the machine. Its Hello has callbuf.FeatureApart.
type Lender interface {
	Newcomer
	// MostBytes is the largest arena that the machine has memory for; 0: it doesn't say.
	MostBytes() uint64
	// Lend asks for the memory of a segment. Its header is written. The file is the
	// caller's to close; what the machine does with the memory, nobody knows.
	Lend(t Terms) (*os.File, Loan, error)
}

// Terms is what a segment has to be like.
type Terms struct {
	Geometry callbuf.Geometry
	Features uint64 // that it may have, beside callbuf.FeatureApart
}

// Loan says where it lies in the file that comes along.
type Loan struct {
	Generation uint64
	Features   uint64 // that it has of those
	Parts      callbuf.Extents
}
