// Package cuda is the CUDA driver API as data: numbers, results, argument
// records and the wire operations that calls fold into. It has no behaviour;
// everything that speaks of CUDA, on either side of a call buffer, imports it.
package cuda

// Result is a CUresult. Zero is success.
type Result int32

// Error makes a Result usable as a Go error; callers compare with Success first.
func (r Result) Error() string { return r.Name() }

// Device describes one device to a guest: the answers to all attribute queries.
type Device struct {
	Name       string
	UUID       [16]byte
	TotalMem   uint64
	PCIBusID   string
	Attributes [NumAttributes]int32 // index: CUdevice_attribute
}

// NumAttributes bounds the attribute numbers that a snapshot carries.
const NumAttributes = 160

// ModuleLayout says what a loaded module offers: all that a guest needs to
// launch its kernels and find its variables without asking again.
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
	// Required is the only shape of a block that a launch may have, zero for any.
	Required [3]int32
}

// TryFirst as the Refusal of a kernel means that the device decides at the first launch, which therefore waits for the answer.
const TryFirst = -1

// ParamLayout is the place of one kernel parameter in the parameter block.
type ParamLayout struct{ Offset, Size uint32 }

// GlobalKind says what a module variable is.
type GlobalKind uint32

// The kinds of module variables: plain memory, and references whose address stands for something.
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
