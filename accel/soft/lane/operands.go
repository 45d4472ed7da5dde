package lane

import "pegasus/accel/ptx"

// paramLoad is a load of a kernel's parameter.
type paramLoad struct {
	at     uint64 // bytes from the first parameter
	size   int    // bytes
	extend uint8  // bits to shift left and back to extend a sign, or 0
	mask   uint64 // bits of the register
}

// barrierOp is a bar or barrier instruction.
type barrierOp struct {
	id      place   // uniform over the warp
	count   place   // of threads, or nowhere for all
	arrive  bool    // threads do not wait
	cluster bool    // it is the cluster's
	red     ptx.Mod // Popc, And or Or; RN if it is no reduction
	d       place   // result of the reduction
	p       place   // predicate to reduce
	not     bool    // the predicate is complemented
}

// callOp is a call that is executed.
type callOp struct {
	target   place   // of the address, or nowhere
	to       start   // without an address
	base     uint64  // address of the module's first function
	frame    int     // bytes of the caller's frame: the callee's begins there
	passing  int     // bytes of arguments and results
	passed   []move  // arguments
	returned []move  // results
	saved    []saved // registers that are alive across the call

	// The caller's and the callee's number among the functions of the body; callee is -1 for a call by address. The
	// executor does not read them.
	unit, callee int
}

// move copies bytes between the frames of caller and callee: the offsets in both, and the number of bytes.
type move struct{ caller, callee, size int }

// saved is a place with a value that the frame keeps during a call, at an offset in bytes.
type saved struct {
	place place
	at    int
}

// allocaOp is an alloca instruction.
type allocaOp struct {
	align uint64 // bytes, a power of two
	frame int    // bytes of the frame of the function that executes it
	unit  int    // number of that function; the executor does not read it
}

// printOp has the views of a call of vprintf: the memory of its strings and its arguments.
type printOp struct {
	text *memOperand // of single bytes
	word *memOperand // of arguments of 4 bytes
	long *memOperand // of arguments of 8 bytes
}

// assertOp is a call of __assertfail.
type assertOp struct {
	text     *memOperand // the memory of its strings, by single bytes
	function place       // address of the function's name
}

// atomicFunc computes the new value from the old one and the operands.
type atomicFunc func(old, b, c uint64) uint64

// atomicOp is the operation of an atomic instruction on an element.
type atomicOp struct {
	f    atomicFunc
	own  atomicFunc // if another one, that for memory of the block
	add  bool       // plain addition of integers
	size int        // bytes of an element
}

// asyncCopy is cp.async. It is executed at once, so there is nothing left to wait for.
type asyncCopy struct {
	size  int        // bytes
	from  memOperand // reads all bytes
	byte  memOperand // reads one
	bytes place      // to read, or nowhere for all; the rest becomes zero
	skip  place      // predicate to read none, or nowhere
	not   bool       // the predicate is complemented
}

// bulkCopy is cp.async.bulk or cp.reduce.async.bulk. It is executed at once; a thread that waits for it at an mbarrier
// finds that its bytes have come.
type bulkCopy struct {
	from   *memOperand
	bar    *memOperand // the mbarrier, or nil
	size   place       // bytes
	blocks place       // of the cluster, a bit for each, or nowhere for this one
	bytes  place       // to copy of each 16, a bit for each, or nowhere for all
	op     *atomicOp   // of the elements, or nil to copy
}

// asyncStore is st.async or red.async.
type asyncStore struct {
	bar    *memOperand // the mbarrier
	values []place
	size   int       // bytes of a value
	op     *atomicOp // or nil to store
}

// mbarrierOp describes the effect of an instruction on an mbarrier.
type mbarrierOp struct {
	count  place // of arrivals, or nowhere for one
	bytes  place // announced, or nowhere
	sign   int64 // of the bytes: 1, or -1 for completed ones
	drop   bool  // the next phases expect the arrivals no more
	parity bool  // a wait has a parity, not a state
}

// warpOp describes a warp instruction.
type warpOp struct {
	mode   ptx.Mod // which of the family's instructions it is
	wide   bool    // its operand has 64 bits
	signed bool    // its operand is
	member place   // the member mask, or nowhere
	// float, if not nil, combines values of redux.f32; abs drops their signs first.
	float func(x, y, _ float32) float32
	abs   bool
}

// textureOp has the operands and modifiers of a tex or tld4 instruction.
type textureOp struct {
	out     [4]place // of the channels, or nowhere
	at      [3]place // coordinates
	layer   place    // or nowhere
	sampler place    // handle of a .samplerref, or nowhere
	shape   ptx.Geometry
	integer bool // coordinates are s32
	gather  int  // channel of tld4, or -1
	plain   bool // nothing but coordinates in one or two dimensions
}

// queryOp is txq or suq.
type queryOp struct {
	what    ptx.Mod // the property
	sampler bool    // of a .samplerref
	surface bool    // of a surface
}

// typeTest is istypep.
type typeTest struct {
	kind ptx.Opaque
}

// surfaceOp describes a suld, sust or sured instruction.
type surfaceOp struct {
	shape    ptx.Geometry
	at       [3]place     // coordinates
	layer    place        // or nowhere
	beyond   ptx.Mod      // Trap, Clamp or Zeros: the handling of coordinates beyond the edges
	elements bool         // .p: the first coordinate counts elements and values are converted, else it counts bytes
	size     int          // bytes of a value
	values   []place      // to store, or of the loaded values
	atomic   [2]*atomicOp // sured: on unsigned and on signed numbers
}

// tile is a matrix, distributed over the registers of the threads of a warp.
type tile struct {
	ptx.Fragment
	regs []place
	// at maps each element of each thread to the element of the matrix: A is numbered by rows, B by columns, C and D by
	// rows. Several matrices follow one another.
	at [warpLanes][]uint16
}

// bitsOf returns the size of an element in bits.
func (t *tile) bitsOf() int {
	switch t.Type {
	case ptx.U4, ptx.S4:
		return 4
	case ptx.B1:
		return 32
	}
	return 8 * t.Type.Size()
}

// matrixOp is a product of matrices: d = a·b + c.
type matrixOp struct {
	a, b, c, d *tile
	sat        bool // integers are clamped to the range of 32 bits
	and        bool // of bits, instead of xor
}

// tileMove is wmma.load or wmma.store.
type tileMove struct {
	*tile
	rows   bool  // of the matrix stand together in memory
	stride place // elements from one to the next, or nowhere
	bytes  int   // moved at a time
	write  bool
}

// matrixRows describes an ldmatrix or stmatrix instruction.
type matrixRows struct {
	regs  []place // one for each matrix
	trans bool    // matrices are transposed
	write bool
}
