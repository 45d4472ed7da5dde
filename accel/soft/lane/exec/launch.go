package exec

import (
	"fmt"
	"io"
	"sync/atomic"
)

// Memory is the device memory that a launch may access.
type Memory interface {
	// Region returns the live allocation that contains addr: its base address and its bytes, nil if there is none. The
	// bytes stay valid during the launch. It may be called from several goroutines.
	Region(addr uint64) (base uint64, mem []byte)
	// Beside returns the memory for an access of n bytes at an address outside all allocations, nil if the access is a
	// fault. The result is valid for this access alone.
	Beside(addr, n uint64) []byte
}

// Launch is one execution of a kernel.
type Launch struct {
	Grid, Block [3]uint32
	SharedBytes uint32 // dynamic shared memory
	Cooperative bool   // all blocks may synchronize
	Stack       uint64 // bytes that a thread may use for calls; as much as there is room for, and at least leastStack
	Heap        *Heap  // of malloc and free; nil: there is none
	Params      []byte // at least the kernel's ParamBytes
	Cores       int    // goroutines; less than one is one
	MostCores   int    // upper bound of the cores with those of Growth
	Growth      *Growth
	Cancel      *atomic.Bool
	// Yield reports whether the launch is to stop for now. Its cores call it at least once in a millisecond or so,
	// concurrently. When all have stopped, one of them calls Resume, which blocks until they are to continue. nil: the
	// launch is never interrupted.
	Yield  func() bool
	Resume func()
	// Cede is called by a core when all the blocks that it has begun only wait, for memory or for a clock. It may block the
	// core in favour of other work. nil: the core keeps polling.
	Cede func()
	// Left is called when a core of several has no blocks left. nil: it need not be.
	Left    func()
	Meter   *Meter // of the processor time that the cores take; nil: none
	Memory  Memory
	Texture func(handle uint64) *Texture // returns textures and surfaces, also for references; nil: there are none
	// Output of vprintf, and messages of __assertfail, one call to Write each; nil discards.
	Stdout, Stderr io.Writer
	Profile        *Profile // to add to; nil: none
	Random         uint64   // chooses an order of a block's warps; 0: the one that is most like a GPU's
}

// Fault is the reason why a launch ended early.
type Fault struct {
	Result int32 // CUDA result number
	Kernel string
	Block  [3]uint32
	Thread [3]uint32
	Addr   uint64
	Line   int // of the PTX; 0: unknown
	Msg    string
}

// Error returns a message with the kernel, thread, line and address.
func (f *Fault) Error() string {
	return fmt.Sprintf("kernel %s block %v thread %v, ptx line %d: %s (address %#x)", f.Kernel, f.Block, f.Thread, f.Line, f.Msg, f.Addr)
}
