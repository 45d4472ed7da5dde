package accel

import (
	"os"
	"time"

	"pegasus/cuda"
)

// Capabilities are the optional abilities of a Device, in groups. A group that the device does not have is nil; a group
// that it has is complete. The groups are constant: the worker calls Capabilities once, when it has opened the device,
// and keeps the result.
//
// Unless a method's comment states otherwise, a group follows the rules of Device: the worker's poller is the only
// caller, no call blocks, and addresses, sizes and offsets are in bytes.
type Capabilities struct {
	Control      Controller  // bounds on queued work and on kernels' run times
	Prediction   Predictor   // the duration of launches
	Waiting      WaitFinder  // kernels that only wait
	Mapping      Mapper      // cuMemMap: memory without addresses, mapped at reserved ranges
	FileSharing  FileSharer  // memory that the processes of a domain share by way of files
	PeerSharing  PeerSharer  // memory that the processes of a domain pass to each other; excludes FileSharing
	Coordination Coordinator // the memory and the spin seats that all workers of the accelerator share
	Diagnostics  Diagnoser   // profiles and additional checks of kernels
	StreamWords  WordSupport // WaitValue and WriteValue; the zero value: neither
	Version      uint32      // of CUDA, 1000*major + 10*minor, if the worker has to report a lower one than its own; 0: not
	Quirks       int32       // of package cuda: TakesMachineCode, GivesHandles
}

// ContextCapabilities are the optional abilities of a Context, as Capabilities are those of its device. All contexts of
// a device have the same groups.
type ContextCapabilities struct {
	Graphs      Grapher      // graphs that are executed as one piece of work
	Printf      Printfer     // output of kernels
	Preparation Preparer     // work in advance of a kernel's first launch
	Tensors     TensorMapper // tensor descriptions in the device's format
	Files       FileAttacher // the context's part of FileSharing; nil without it
	Peers       PeerAttacher // the context's part of PeerSharing; nil without it
}

// Controller bounds the work of the process. Without it, the worker counts calls only, and an ending guest process waits
// until its work has ended.
type Controller interface {
	// Queued returns the number of pending items: pieces of work, and waits of one piece for another. It grows with the
	// memory that they occupy, so that the worker can bound that memory. While it is 0 no Done is being called, and a
	// Record or WaitEvent ends before its Submit returns. Any goroutine may call it.
	Queued() int
	// Abort ends running work as soon as the device can, and all work that follows, as if its context were destroyed.
	// Any goroutine may call it, also during a Submit that executes the work itself.
	Abort()
	// LimitKernels changes the run time limit of kernels, d > 0, including a running one. Any goroutine may call it.
	LimitKernels(d time.Duration)
}

// Predictor predicts durations. The gate admits work by them.
type Predictor interface {
	// Predict returns for how many nanoseconds a Launch will hold the compute engine; 0 if that is unknown, and for
	// other work.
	Predict(w Work) int64
}

// WaitFinder detects kernels that wait for other work.
type WaitFinder interface {
	// Polling reports whether a kernel has computed nothing for the last while but polled memory or a clock. It may depend
	// on work that comes later, and leaves its cores to other kernels: so the worker need not wait for its end before it
	// submits more. Any goroutine may call it.
	Polling() bool
}

// Mapper manages memory without addresses, and maps it at addresses reserved earlier. It refuses every invalid argument
// with an error; sizes, offsets and addresses are multiples of MapGranule. Closing the device releases everything.
type Mapper interface {
	// MapGranule returns the granularity in bytes, a power of two.
	MapGranule() uint64
	// ReserveRange reserves an address range, at wish if that is free. The alignment is 0 or a power of two.
	ReserveRange(bytes, alignment, wish uint64) (addr uint64, r cuda.Result)
	// FreeRange releases a reserved range. Nothing may be mapped there.
	FreeRange(addr uint64) cuda.Result
	// CreateMemory allocates zeroed memory, which counts against the quota from now on.
	CreateMemory(bytes uint64) (Memory, cuda.Result)
	// AwaitFree blocks until one of the pending frees completes, if they may be the cause of an out-of-memory error. It
	// returns false at once if none is pending, or if its completion could depend on the guest, which in turn may be
	// waiting for the caller.
	AwaitFree() bool
	// Map maps bytes of memory from an offset on at an address. Work cannot access them before SetAccess.
	Map(addr, bytes, offset uint64, m Memory) cuda.Result
	// Unmap removes whole mappings at once; work that uses them fails.
	Unmap(addr, bytes uint64) cuda.Result
	// SetAccess sets the access of work to whole mappings.
	SetAccess(addr, bytes uint64, a Access) cuda.Result
}

// FileSharer shares memory between the processes of a domain by way of a file that all of them have open: device
// segments lie there, exported allocations are moved there, and exported Memory is created there. The device accesses
// the file's pages directly. The contexts have FileAttacher, the device has Mapping, and Coordination in a worker.
type FileSharer interface {
	// ExportIPC moves the memory around an allocation of Context.Alloc to the part of a file that find returns, without
	// changing its address, unless the memory lies in such a part already. It returns the ID of that part, the
	// allocation's offset in it, and the allocation's length. ExportIPC blocks until no work uses any memory; it returns
	// cuda.ErrorNotReady if that may depend on the guest.
	ExportIPC(addr uint64, find func(bytes uint64) (ExportedRegion, cuda.Result)) (id uint32, at, bytes uint64, r cuda.Result)
	// ImportMemory wraps a part of the file as Memory, for Mapper.Map; gone is called when it is released and mapped
	// nowhere. The memory is accounted for already. The caller keeps ownership of the file.
	ImportMemory(file *os.File, offset, bytes uint64, gone func()) (Memory, cuda.Result)
}

// FileAttacher is the part of a FileSharer that belongs to a context.
type FileAttacher interface {
	// Attach makes a part of the file accessible to the context and returns its address. The caller keeps ownership of
	// the file.
	Attach(file *os.File, offset, bytes uint64) (addr uint64, r cuda.Result)
	Detacher
}

// PeerSharer shares memory between the processes of a domain without a file: a process exports memory under a token, and
// another process fetches it from the exporter. The contexts have PeerAttacher, the device has Coordination in a worker.
type PeerSharer interface {
	// ExportIPC returns the token by which other processes import an allocation of Context.Alloc, and the allocation's
	// length. The token is valid until the allocation is freed.
	ExportIPC(addr uint64) (t ShareToken, bytes uint64, r cuda.Result)
	// ExportMemory returns the token of a Memory of this device.
	ExportMemory(m Memory) (ShareToken, cuda.Result)
	// ImportMemory imports such memory of another process; it is accounted like memory that CreateMemory created. It may
	// block briefly.
	ImportMemory(t ShareToken) (m Memory, bytes uint64, r cuda.Result)
	// SegmentUnit returns the allocation granularity of device segments, in bytes.
	SegmentUnit() uint64
	// StoreSegments stores the device segments that this process alone holds, although running work may still use them:
	// the process is about to end. It may block for as long as copying takes. Any goroutine may call it.
	StoreSegments()
}

// PeerAttacher is the part of a PeerSharer that belongs to a context.
type PeerAttacher interface {
	// ImportIPC makes an exported allocation accessible to the context and returns its address and length. It may block
	// briefly.
	ImportIPC(t ShareToken) (addr, bytes uint64, r cuda.Result)
	// AttachSegment makes a device segment accessible to the context and returns its address. It may block while other
	// processes acquire or release the segment, and for as long as copying its bytes takes. The segment is accounted
	// for already.
	AttachSegment(s DeviceSegment) (addr uint64, r cuda.Result)
	Detacher
}

// Detacher ends a context's access to shared memory.
type Detacher interface {
	// Detach removes an import or an attachment once all work submitted earlier has ended, then calls done. It returns
	// cuda.ErrorInvalidValue for any other address. Destroying the context detaches, too.
	Detach(addr uint64, done func()) cuda.Result
}

// Coordinator is the device's part in the state that all workers of the accelerator share, whichever domain they serve.
type Coordinator interface {
	// MemoryFree returns the bytes of device memory that this process may still allocate, if its domain's quota allows
	// it.
	MemoryFree() uint64
	// ReserveSegments sets the bytes of device memory that belong to the domain and not to one of its processes: those
	// of its device segments. If that is an increase that does not fit, it returns false and changes nothing.
	ReserveSegments(bytes uint64) bool
	// SetShare changes the domain's share of the device memory. Any goroutine may call it.
	SetShare(s Share)
	// TrySpin takes one of the host's seats for threads that poll instead of sleeping, and reports whether there was
	// one; EndSpin returns it.
	TrySpin() bool
	EndSpin()
	// Saturated reports whether every core of the host is computing for the accelerator, so that no thread should poll.
	Saturated() bool
}

// Share is a domain's share of the device memory.
type Share struct {
	Guarantee uint64 // bytes that other domains cannot take; 0: none
	Priority  int    // memory of a domain with a higher priority is evicted later
}

// Diagnoser examines kernels for the program's developer.
type Diagnoser interface {
	// Profile starts profiling.
	Profile()
	// Report returns the profile so far as lines of text for the program's user.
	Report() string
	// Check enables checks for later allocations and launches. Earlier ones run on without them.
	Check(c Checks)
}

// Checks selects errors that have no consequences on most devices, for Diagnoser.Check to detect.
type Checks struct {
	Bounds bool   // accesses outside allocations, to the byte
	Order  bool   // missing barriers between warps of a block: warps run in an order that Seed chooses
	Seed   uint64 // the same seed gives the same order
}

// WordSupport is the support for WaitValue and WriteValue.
type WordSupport struct {
	Bits int  // 0: none; 32; or 64 if words of both widths are supported
	Nor  bool // NorBit is supported; the other conditions always are
}

// Grapher stores a graph of work and executes it as one piece: a Replay, which is ordered after earlier work of its
// stream and after the graph's previous Replay. Its Usage has Class Compute if the graph contains a kernel, else
// CopyDevice, and is as long as the time for which its work held engines. Without it, the worker submits the nodes of a
// graph one by one.
type Grapher interface {
	// NewGraph creates a graph from nodes. If before is not nil, the new graph replaces it and is ordered after its
	// Replays; before is destroyed unless NewGraph fails. cuda.ErrorNotSupported means that the graph contains work
	// that the device executes only piece by piece.
	NewGraph(nodes []GraphNode, before Graph) (Graph, cuda.Result)
}

// Printfer returns device printf and assertion output.
type Printfer interface {
	// OnOutput sets a callback that receives whether output is pending, at each change. The callback may run on any
	// goroutine and must not block. It is set before anything is submitted.
	OnOutput(func(pending bool))
	// MayPrint reports whether a kernel that can produce output was launched.
	MayPrint() bool
	// ReadOutput removes the oldest output, as many bytes as fit and belong to one file. left is an upper bound of the
	// remaining bytes. Any goroutine may call it.
	ReadOutput(to []byte) (n int, of File, left uint64)
}

// Preparer does work in advance that needs processor time but no engine, such as compiling a kernel for its first
// launch: a launch that has passed the gate holds its domain's turn.
type Preparer interface {
	// Prepare may block for as long as the work takes. Any goroutine may call it.
	Prepare(w *Launch)
	// Prepared reports whether Prepare has nothing to do.
	Prepared(w *Launch) bool
}

// TensorMapper encodes tensor descriptions in the format of the device's kernels.
type TensorMapper interface {
	// TensorMap encodes a description of form TiledTensor, ColumnsOfTensor or MovedTensor.
	TensorMap(a *cuda.TensorMapArgs) (m [16]uint64, r cuda.Result)
}
