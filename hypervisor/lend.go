package hypervisor

import (
	"os"

	"pegasus/callbuf"
)

// Lender is a connection with a segment that doesn't come from the daemon: it represents a process of a virtual
// machine, and provides a part of the memory that it shares with the machine. Its Hello has callbuf.FeatureApart.
type Lender interface {
	Connection
	// MostBytes returns the largest arena that the machine has memory for; 0: unknown.
	MostBytes() uint64
	// Lend requests the memory of a segment from the machine. The segment's header is written. The caller closes the
	// file; the machine may change the memory at any time.
	Lend(t Terms) (*os.File, Loan, error)
}

// Terms are the required properties of a segment.
type Terms struct {
	Geometry callbuf.Geometry
	Features uint64 // that it may have, beside callbuf.FeatureApart
}

// Loan is the position of the segment in the file returned with it.
type Loan struct {
	Generation uint64
	Features   uint64 // those of Terms.Features that it has
	Parts      callbuf.Extents
}
