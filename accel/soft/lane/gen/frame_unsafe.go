package gen

import (
	"unsafe"

	"pegasus/accel/soft/lane/asm"
)

// Frame is the argument of generated code: where a group's registers are, and the memory of each access group. The
// executor fills it before each call.
type Frame struct {
	Rows32, Rows64 unsafe.Pointer // rows of slot 0, at the first lane
	Singles        unsafe.Pointer
	Predicates     unsafe.Pointer // bits of slot 0, at the first lane
	Active         unsafe.Pointer // bits of the active lanes, at the first lane
	Units          uint64         // number of units of 16 lanes
	Iterations     uint64         // of a loop's code, at least 1
	Accesses       [MaxAccesses]Access
	Counters       [MaxCounters]Counter
	scratch        [scratches][16]uint64 // only the code uses it
}

// Counter is an affine register: the value of the first lane, and the distance from lane to lane.
type Counter struct{ First, Step uint32 }

// MaxCounters bounds the affine registers that a run reads as numbers.
const MaxCounters = 4

// scratches is the number of rows of a unit that a frame has room for.
const scratches = 8

// Access is the memory of an access group. The memory of a lane's address a is at Base+a.
type Access struct {
	Runs      unsafe.Pointer // a Run for each unit, or one for all
	Base      uint64
	Delta     uint64         // bytes from an iteration's addresses to the next one's, in a loop's code
	Addresses unsafe.Pointer // row of addresses or indices, at the first lane; for irregular runs
	Pattern   *Pattern       // of the irregular runs, or nil

	Single        Run    // the one for all units
	pointer, step uint64 // of the unit; only the code uses them
}

// Run is the addresses of 16 lanes: the first, and the distance from lane to lane in bytes, or Irregular.
type Run struct {
	First uint64
	Step  int64
}

// Window is the number of elements of 4 bytes, from that of the first lane on, in which a pattern's are.
const Window = 32

// Pattern is the order in which 16 lanes access elements of 4 bytes that lie close together.
type Pattern struct {
	From           [UnitLanes]uint32 // the number of each lane's element
	To             [Window]uint32    // the lane of each element
	Loaded, Stored [2]uint16         // the elements up to the last one that a lane accesses, and those that lanes access
}

// Irregular is the step of lanes whose addresses do not differ by a constant.
const Irregular = -1 << 63

// UnitLanes is the number of lanes that code computes at a time.
const UnitLanes = 16

// MaxAccesses bounds the access groups of a run.
const MaxAccesses = 16

// Sizes of the executor's rows, in bytes: those of 256 lanes, and a cache line.
const (
	Stride32        = 256*4 + 64
	Stride64        = 256*8 + 64
	PredicateStride = 32
)

// Offsets in a Frame.
var (
	frame           Frame
	frameRows32     = asm.At(asm.RDI, int(unsafe.Offsetof(frame.Rows32)))
	frameRows64     = asm.At(asm.RDI, int(unsafe.Offsetof(frame.Rows64)))
	frameSingles    = asm.At(asm.RDI, int(unsafe.Offsetof(frame.Singles)))
	framePredicates = asm.At(asm.RDI, int(unsafe.Offsetof(frame.Predicates)))
	frameActive     = asm.At(asm.RDI, int(unsafe.Offsetof(frame.Active)))
	frameIterations = asm.At(asm.RDI, int(unsafe.Offsetof(frame.Iterations)))
	frameUnits      = asm.At(asm.RDI, int(unsafe.Offsetof(frame.Units)))
)

func accessField(n int, field uintptr) asm.Mem {
	return asm.At(asm.RDI, int(unsafe.Offsetof(frame.Accesses)+uintptr(n)*unsafe.Sizeof(Access{})+field))
}

// Offsets in a Pattern.
const (
	patternFrom   = int(unsafe.Offsetof(Pattern{}.From))
	patternTo     = int(unsafe.Offsetof(Pattern{}.To))
	patternLoaded = int(unsafe.Offsetof(Pattern{}.Loaded))
	patternStored = int(unsafe.Offsetof(Pattern{}.Stored))
)

func scratchOf(n int) asm.Mem {
	return asm.At(asm.RDI, int(unsafe.Offsetof(frame.scratch))+n*int(unsafe.Sizeof(frame.scratch[0])))
}

func counterOf(n int) asm.Mem {
	return asm.At(asm.RDI, int(unsafe.Offsetof(frame.Counters))+n*int(unsafe.Sizeof(Counter{})))
}

func runsOf(n int) asm.Mem      { return accessField(n, unsafe.Offsetof(Access{}.Runs)) }
func baseOf(n int) asm.Mem      { return accessField(n, unsafe.Offsetof(Access{}.Base)) }
func deltaOf(n int) asm.Mem     { return accessField(n, unsafe.Offsetof(Access{}.Delta)) }
func addressesOf(n int) asm.Mem { return accessField(n, unsafe.Offsetof(Access{}.Addresses)) }
func patternOf(n int) asm.Mem   { return accessField(n, unsafe.Offsetof(Access{}.Pattern)) }
func pointerOf(n int) asm.Mem   { return accessField(n, unsafe.Offsetof(Access{}.pointer)) }
func stepOf(n int) asm.Mem      { return accessField(n, unsafe.Offsetof(Access{}.step)) }
