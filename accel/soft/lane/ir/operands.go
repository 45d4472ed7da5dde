package ir

import "pegasus/accel/ptx"

// ParamLoad is a load of a kernel's parameter.
type ParamLoad struct {
	At     uint64 // bytes from the first parameter
	Size   int    // bytes
	Extend uint8  // bits to shift left and back to extend a sign, or 0
	Mask   uint64 // bits of the register
}

// Barrier is a bar or barrier instruction.
type Barrier struct {
	Id        Place   // uniform over the warp
	Count     Place   // of threads, or Nowhere for all
	Arrive    bool    // threads do not wait
	Cluster   bool    // it is the cluster's
	Reduction ptx.Mod // Popc, And or Or; RN if it is no reduction
	Dst       Place   // result of the reduction
	Pred      Place   // predicate to reduce
	PredNot   bool    // the predicate is complemented
}

// Call is a call that is executed.
type Call struct {
	Target      Place         // of the address, or Nowhere
	Start       FunctionStart // without an address
	Base        uint64        // address of the module's first function
	Frame       int           // bytes of the caller's frame: the callee's begins there
	PassedBytes int           // bytes of arguments and results
	Passed      []FrameCopy   // arguments
	Returned    []FrameCopy   // results
	Saved       []SavedPlace  // registers that are alive across the call

	// The caller's and the callee's number among the functions of the body; callee is -1 for a call by address. The
	// executor does not read them.
	Unit, Callee int
}

// FrameCopy copies bytes between the frames of caller and callee: the offsets in both, and the number of bytes.
type FrameCopy struct{ Caller, Callee, Size int }

// SavedPlace is a place with a value that the frame keeps during a call, at an offset in bytes.
type SavedPlace struct {
	Place Place
	At    int
}

// Alloca is an alloca instruction.
type Alloca struct {
	Align uint64 // bytes, a power of two
	Frame int    // bytes of the frame of the function that executes it
	Unit  int    // number of that function; the executor does not read it
}

// Print has the views of a call of vprintf: the memory of its strings and its arguments.
type Print struct {
	Text *Memory // of single bytes
	Word *Memory // of arguments of 4 bytes
	Long *Memory // of arguments of 8 bytes
}

// Assert is a call of __assertfail.
type Assert struct {
	Text     *Memory // the memory of its strings, by single bytes
	Function Place   // address of the function's name
}

// AtomicFunc computes the new value from the old one and the operands.
type AtomicFunc func(old, b, c uint64) uint64

// Atomic is the operation of an atomic instruction on an element.
type Atomic struct {
	Apply        AtomicFunc
	ApplyPrivate AtomicFunc // if another one, that for memory of the block
	Adds         bool       // plain addition of integers
	Size         int        // bytes of an element
}

// AsyncCopy is cp.async. It is executed at once, so there is nothing left to wait for.
type AsyncCopy struct {
	Size    int    // bytes
	From    Memory // reads all bytes
	Byte    Memory // reads one
	Bytes   Place  // to read, or Nowhere for all; the rest becomes zero
	Skip    Place  // predicate to read none, or Nowhere
	SkipNot bool   // the predicate is complemented
}

// BulkCopy is cp.async.bulk or cp.reduce.async.bulk. It is executed at once; a thread that waits for it at an mbarrier
// finds that its bytes have come.
type BulkCopy struct {
	From     *Memory
	Mbarrier *Memory // the mbarrier, or nil
	Size     Place   // bytes
	Blocks   Place   // of the cluster, a bit for each, or Nowhere for this one
	Bytes    Place   // to copy of each 16, a bit for each, or Nowhere for all
	Atomic   *Atomic // of the elements, or nil to copy
}

// AsyncStore is st.async or red.async.
type AsyncStore struct {
	Mbarrier *Memory // the mbarrier
	Values   []Place
	Size     int     // bytes of a value
	Atomic   *Atomic // or nil to store
}

// Mbarrier describes the effect of an instruction on an mbarrier.
type Mbarrier struct {
	Count  Place // of arrivals, or Nowhere for one
	Bytes  Place // announced, or Nowhere
	Sign   int64 // of the bytes: 1, or -1 for completed ones
	Drop   bool  // the next phases expect the arrivals no more
	Parity bool  // a wait has a parity, not a state
}

// Warp describes a warp instruction.
type Warp struct {
	Mode   ptx.Mod // which of the family's instructions it is
	Wide   bool    // its operand has 64 bits
	Signed bool    // its operand is
	Member Place   // the member mask, or Nowhere
	// CombineFloats, if not nil, combines values of redux.f32; abs drops their signs first.
	CombineFloats func(x, y, _ float32) float32
	Abs           bool
}

// Texture has the operands and modifiers of a tex or tld4 instruction.
type Texture struct {
	Out     [4]Place // of the channels, or Nowhere
	At      [3]Place // coordinates
	Layer   Place    // or Nowhere
	Sampler Place    // handle of a .samplerref, or Nowhere
	Shape   ptx.Geometry
	Integer bool // coordinates are s32
	Gather  int  // channel of tld4, or -1
	Plain   bool // nothing but coordinates in one or two dimensions
}

// Query is txq or suq.
type Query struct {
	Property ptx.Mod // the property
	Sampler  bool    // of a .samplerref
	Surface  bool    // of a surface
}

// TypeTest is istypep.
type TypeTest struct {
	Kind ptx.Opaque
}

// Surface describes a suld, sust or sured instruction.
type Surface struct {
	Shape    ptx.Geometry
	At       [3]Place   // coordinates
	Layer    Place      // or Nowhere
	Outside  ptx.Mod    // Trap, Clamp or Zeros: the handling of coordinates beyond the edges
	Elements bool       // .p: the first coordinate counts elements and values are converted, else it counts bytes
	Size     int        // bytes of a value
	Values   []Place    // to store, or of the loaded values
	Atomic   [2]*Atomic // sured: on unsigned and on signed numbers
}

// Tile is a matrix, distributed over the registers of the threads of a warp.
type Tile struct {
	ptx.Fragment
	Regs []Place
	// At maps each element of each thread to the element of the matrix: A is numbered by rows, B by columns, C and D by
	// rows. Several matrices follow one another.
	At [WarpLanes][]uint16
}

// BitsOf returns the size of an element in bits.
func (t *Tile) BitsOf() int {
	switch t.Type {
	case ptx.U4, ptx.S4:
		return 4
	case ptx.B1:
		return 32
	}
	return 8 * t.Type.Size()
}

// Product is a product of matrices: D = A·B + C.
type Product struct {
	A, B, C, D   *Tile
	Saturates    bool // integers are clamped to the range of 32 bits
	CountsCommon bool // of bits, instead of xor
}

// TileMove is wmma.load or wmma.store.
type TileMove struct {
	*Tile
	ByRows bool  // of the matrix stand together in memory
	Stride Place // elements from one to the next, or Nowhere
	Bytes  int   // moved at a time
	Write  bool
}

// MatrixRows describes an ldmatrix or stmatrix instruction.
type MatrixRows struct {
	Regs  []Place // one for each matrix
	Trans bool    // matrices are transposed
	Write bool
}
