package kvm

import (
	"errors"
	"fmt"
	"time"

	"pegasus/callbuf/region"
)

// ground is the region as the machine has it, of which processes get pieces: an NVDIMM with a
// file system on it, or a PCI device.
type ground interface {
	// name and bytes are for people.
	name() string
	bytes() uint64
	// shared says whether who has one piece can get at all of it.
	shared() bool

	// What the host has written into the last page, and what is told to it there.
	mark() ([]byte, error)
	pointer() (region.Pointer, error)
	setPointer(*region.Pointer) error // nil: there is no control area now

	// clear makes all of it free, and controlArea makes and maps the control area.
	clear() error
	controlArea() (mem []byte, offset uint64, err error)
	// resume leaves to an agent's processes what one before has given them, and maps the
	// control area that it made.
	resume(record) (mem []byte, offset uint64, err error)

	// create makes a piece of zeros, and remove ends it, which nobody uses any more.
	create(name string, bytes uint64) (*piece, error)
	remove(name string) error

	// gone says whether it was unplugged. Its memory may still be mapped then: some kernels take it
	// away, so that whoever touches it faults, and others leave what is at its addresses now.
	gone() bool
	close()
}

// errNone is when a machine has nothing that could be a region.
var errNone = errors.New("this machine has no region: its host attaches it (pegasus attach)")

// findGround finds the machine's region, by the host's mark; nothing else is touched.
func findGround(dir string) (ground, error) {
	d, err := openDevice()
	if err == nil {
		return &files{d, dir}, nil
	}
	b, other := openBar()
	switch {
	case other == nil:
		return b, nil
	case errors.Is(err, errNone):
		return nil, other
	case errors.Is(other, errNone):
		return nil, err
	}
	return nil, fmt.Errorf("%w; %w", err, other)
}

// useTime is how long the host may take to end what an agent before had.
const useTime = 10 * time.Second

// release takes the control area back, and waits until the host uses nothing of the
// region any more: what is free here must be so there.
func release(g ground) error {
	if err := g.setPointer(nil); err != nil {
		return err
	}
	for end := time.Now().Add(useTime); ; time.Sleep(20 * time.Millisecond) {
		b, err := g.mark()
		if err != nil || !region.Used(b) {
			return err
		}
		if time.Now().After(end) {
			return errors.New("the host doesn't let go of the region: is pegasusd running there?")
		}
	}
}
