// Package ptx parses PTX, NVIDIA's portable assembly, into a checked program that an engine can compile: lexer, parser,
// form table, inlining of calls, basic blocks, immediate post-dominators, liveness and register slots.
//
// Callers: the software accelerator.
//
// Trust boundary: the text is a guest's, and hostile. Every size is bounded, and every mistake is an *Error that
// contains the line.
package ptx

import "fmt"

// CUDA results that this package and its engines return.
const (
	ErrInvalidValue          int32 = 1
	ErrInvalidImage          int32 = 200
	ErrNoBinaryForGPU        int32 = 209
	ErrInvalidPTX            int32 = 218
	ErrUnsupportedPTXVersion int32 = 222
	ErrNotFound              int32 = 500
	ErrIllegalAddress        int32 = 700
	ErrLaunchOutOfResources  int32 = 701
	ErrLaunchTimeout         int32 = 702
	ErrAssert                int32 = 710
	ErrHardwareStack         int32 = 714
	ErrMisalignedAddress     int32 = 716
	ErrInvalidAddressSpace   int32 = 717
	ErrInvalidPC             int32 = 718
	ErrLaunchFailed          int32 = 719
	ErrNotSupported          int32 = 801
)

// Bounds on a module's size, so that hostile text can't exhaust the host's memory.
const (
	maxSource      = 32 << 20
	maxRegisters   = 1 << 19 // of a kernel, and of the module
	maxInsts       = 1 << 20
	maxVars        = 1 << 18
	maxDepth       = 64 // of braces, calls and initialisers
	maxVarBytes    = 1 << 30
	maxInitBytes   = 64 << 20 // of all initialisers together
	maxLocalBytes  = 512 << 10
	maxParamBytes  = 32764
	maxSharedBytes = 48 << 10 // of a kernel, dynamic shared memory apart
	operandLimit   = 512
	maxNested      = 4 // operands within operands
	maxAlign       = 1 << 16
	maxFuncs       = 1 << 16
	maxLabels      = 1 << 20 // of all functions together
	maxRefs        = 1 << 20 // addresses in initialisers
	maxIdentifier  = 16 << 10
	maxDirectives  = 256 // bytes of directives without a blank between them
	maxMessage     = 300
	workLimit      = 1 << 22 // variables visited for calls, in the whole module
	newestMajor    = 9
	newestMinor    = 3
)

// InlineLimit bounds the instructions of a kernel with the functions that are inlined.
const InlineLimit = 1 << 18

// Error describes an error in a module, and its position.
type Error struct {
	Line   int // 0: the error is of the module as a whole
	Msg    string
	Result int32 // CUDA result number
}

func (e *Error) Error() string {
	if e.Line == 0 {
		return "ptx: " + e.Msg
	}
	return fmt.Sprintf("ptx line %d: %s", e.Line, e.Msg)
}

// Module is a parsed and checked translation unit.
type Module struct {
	Version [2]int
	Target  string
	Kernels []*Func // entries in the order of the file
	Globals []*Var  // variables in .global and .const, in the order of the file
	Funcs   map[string]*Func
	Pointed []*Func // functions of which the address is taken, by name
	byName  map[string]*Var
	locals  []*Var // in .local: each thread of a kernel has them
}

// Kernel returns the entry of that name, or nil.
func (m *Module) Kernel(name string) *Func {
	for _, k := range m.Kernels {
		if k.Name == name {
			return k
		}
	}
	return nil
}

// Param is one parameter of a function.
type Param struct {
	Name                string
	Size, Align, Offset int
	Type                Type
	v                   *Var
}

// Func is an entry or a device function. Link completes it; nothing changes it afterwards.
type Func struct {
	Name    string
	Entry   bool
	Linkage Linkage
	// Defined is false for a declaration without a body.
	Defined bool
	Module  *Module

	Target string // of the object that contains the text, as "sm_70"; empty if that has none
	Object string // name of that object, for messages; may be empty
	Line   int
	source source

	Params     []Param
	Returns    []Param
	ParamBytes int
	// inRegisters are the parameters that old text declares with .reg.
	inRegisters []registerParam

	LaunchBounds
	Footprint

	// Refusal, if not nil, is the reason why the function can't be executed: the first unknown instruction in it, or
	// for a kernel in the functions that it may call.
	Refusal *Error

	Regs      []Type // type of each virtual register
	Vars      []*Var // variables of the body, in any space
	code      code
	allocates bool // on its stack, by alloca
}

// LaunchBounds are the sizes of blocks and clusters that a kernel declares.
type LaunchBounds struct {
	MaxNTid   [3]uint32 // .maxntid, zero if absent
	ReqNTid   [3]uint32 // .reqntid, zero if absent
	clustered bool      // it specifies the number of blocks of a cluster
}

// Footprint contains the resources that a kernel uses, with all functions that it may call. It is empty for other
// functions.
type Footprint struct {
	StaticShared int  // bytes of static shared memory
	LocalBytes   int  // bytes of local memory a thread
	ConstBytes   int  // bytes of the module's constants
	Size         int  // instructions, registers and variables, with those of each call; Unbounded if it calls itself, or by address
	NumRegs      int  // an estimate of the registers a thread would use
	Heap         bool // allocates or frees memory
	Tells        bool // prints or asserts
}

// Space is a state space.
type Space uint8

// State spaces. Generic is the absence of one.
const (
	Generic Space = iota
	Global
	Shared
	Const
	Local
	ParamSpace
)

func (s Space) String() string {
	return [...]string{"generic", "global", "shared", "const", "local", "param"}[s]
}

// Var is a variable: of the module, or of a function.
type Var struct {
	Name   string
	Space  Space
	Type   Type
	Align  int
	Size   int64 // bytes; 0 for an extern array of unknown size
	Extern bool
	// Element is the size of an element of an array of one dimension, else 0.
	Element int64
	Init    []byte // nil: zeroes; else Size bytes
	Refs    []Ref  // addresses within Init
	Line    int
	// Linkage and Object are as a function's.
	Linkage Linkage
	Object  string
	used    bool
	Offset  int64 // in its space, set by layout (shared, local, kernel parameters)
	// Kernel marks a ParamSpace variable as an entry's parameter.
	Kernel bool
	// Framed marks Offset as relative to the frame of the running function.
	Framed bool
	// Pred marks a predicate parameter, 1 or 0 in memory.
	Pred bool
	// packedAs is the variable's number in the code of a function, packedIn, that
	// is being read.
	packedIn, packedAs int32
	// Opaque marks a variable that represents a texture, a sampler or a surface: its address is the handle.
	Opaque  Opaque
	Sampler Sampler // initial value of a SamplerRef
}

// Ref is the address of a variable plus Add, or of a function; Size bytes of it from bit Shift on are stored at Offset
// of an initialiser.
type Ref struct {
	Offset  int64
	Size    int
	Shift   int
	Var     *Var
	Func    *Func
	Add     int64
	Generic bool
}
