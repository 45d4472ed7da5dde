package lane

import "pegasus/accel/soft/lane/exec"

// The types of a launch are those of package exec.
type (
	Launch      = exec.Launch      // one execution of a kernel
	Fault       = exec.Fault       // the reason why a launch ended early
	Memory      = exec.Memory      // the device memory that a launch may access
	Heap        = exec.Heap        // the memory of malloc and free
	Texture     = exec.Texture     // memory used as a texture, or as a surface
	Format      = exec.Format      // the type of a texture's channels
	AddressMode = exec.AddressMode // the result of reads beyond a texture's edges
	Profile     = exec.Profile     // the cost of launches by line
	LineCost    = exec.LineCost    // the cost of a line
	Meter       = exec.Meter       // measures the processor time of launches
	Growth      = exec.Growth      // adds cores to a running launch
)

// Channel formats.
const (
	U8  = exec.U8
	U16 = exec.U16
	U32 = exec.U32
	S8  = exec.S8
	S16 = exec.S16
	S32 = exec.S32
	F16 = exec.F16
	F32 = exec.F32
)

// Address modes.
const (
	Wrap   = exec.Wrap
	Clamp  = exec.Clamp
	Mirror = exec.Mirror
	Border = exec.Border
)

// MaxLocalBytes bounds the local memory of a block, which lies in the memory of the host.
const MaxLocalBytes = exec.MaxLocalBytes

// NewHeap returns a heap of the size bytes at base, which is a multiple of 16.
func NewHeap(base, size uint64) *Heap { return exec.NewHeap(base, size) }

// MostThreads returns how many threads with so many bytes of local memory each a block may have.
func MostThreads(local int) int { return exec.MostThreads(local) }

// ThreadTime returns the processor time that the calling thread has taken, in nanoseconds.
func ThreadTime() int64 { return exec.ThreadTime() }
