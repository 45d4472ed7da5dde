// Package cuda is the CUDA driver API as data: numbers, results, argument records and the wire operations
// that calls are mapped to. It has no behaviour.
//
// Callers: all code that handles CUDA, on either side of a call buffer.
//
// Trust boundary: decoders get bytes from guests. They check lengths, and leave the check of values to the
// caller.
package cuda

import "fmt"

// Result is a CUresult. Zero is success.
type Result int32

// Error makes a Result usable as a Go error; callers compare with Success first.
func (r Result) Error() string { return r.Name() }

// Device describes one device to a guest: the answers to all attribute queries.
type Device struct {
	Name       string
	UUID       UUID
	TotalMem   uint64
	PCIBusID   string
	Attributes [NumAttributes]int32 // index: CUdevice_attribute
}

// UUID identifies a device.
type UUID [16]byte

// String returns a UUID in the form of NVIDIA's tools, such as GPU-6f2b1c3d-….
func (u UUID) String() string {
	return fmt.Sprintf("GPU-%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}

// NumAttributes bounds the attribute numbers that a snapshot carries.
const NumAttributes = 160

// ModuleLayout describes a loaded module: all data that a guest needs to launch its kernels and find its
// variables without further calls.
type ModuleLayout struct {
	Functions []FunctionLayout
	Globals   []GlobalLayout
}

// FunctionLayout describes one kernel.
type FunctionLayout struct {
	Name                                        string
	ParamBytes                                  uint32
	Params                                      []ParamLayout
	MaxThreads, StaticShared                    int32
	ConstBytes, LocalBytes, Registers           int32
	PTXVersion, BinaryVersion, MaxDynamicShared int32
	// Refusal is the result that every launch of the kernel returns, 0 if it can be launched, or TryFirst.
	Refusal int32
	// Required is the only permitted shape of a block, zero for any.
	Required [3]int32
}

// TryFirst as the Refusal of a kernel means that the device decides at the first launch, which therefore
// waits for the answer.
const TryFirst = -1

// ParamLayout is the position of one kernel parameter in the parameter block.
type ParamLayout struct{ Offset, Size uint32 }

// GlobalKind is the kind of a module variable.
type GlobalKind uint32

// The kinds of module variables: plain memory, and references with an address that identifies an object.
const (
	GlobalMemory GlobalKind = iota
	GlobalTexture
	GlobalSampler
	GlobalSurface
)

// GlobalLayout is one module variable.
type GlobalLayout struct {
	Name    string
	Kind    GlobalKind
	Address uint64
	Size    uint64
}
