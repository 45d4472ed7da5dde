// Package accel defines the interfaces between a worker process and an accelerator, hardware or software.
//
// A worker process opens one Device and creates contexts on it for its guest process. The worker decides when work may
// be submitted (the gate) and which domain it is charged to; a Device only executes. Calls come from one goroutine (the
// worker's poller), in the guest's program order. No call blocks unless its comment states it; asynchronous
// operations report their end to a Done callback.
//
// Callers: backend/worker, which submits a guest's work, and the accelerators' tests (accel/conformance). accel/soft
// and accel/nvidia implement the interfaces.
//
// Trust boundary: a Device trusts the worker, but images, addresses and sizes are the guest's: the Device checks them
// against the guest's own memory and objects.
package accel

import (
	"os"

	"pegasus/cuda"
	"pegasus/vcpu"
)

// Class is the engine that work holds. The engines are accounted separately; Class.Class returns the class of leases
// that an engine belongs to.
type Class = vcpu.Engine

const (
	Compute    = vcpu.ComputeEngine
	CopyIn     = vcpu.CopyInEngine
	CopyOut    = vcpu.CopyOutEngine
	CopyDevice = vcpu.CopyDeviceEngine
	NumClasses = vcpu.NumEngines
)

// Usage is the accelerator time during which one piece of work held an engine. Where several pieces of work share an
// engine at the same time, one of them is charged.
type Usage struct {
	Class      Class
	Start, End int64 // CLOCK_MONOTONIC nanoseconds; equal if no engine was held
}

// Done is called once when a piece of work has ended, from any goroutine, possibly before Submit returns. It must not
// block. Work that depended on another piece is reported after that piece. After a context error, all further work of
// the context ends with that error without being executed.
type Done func(r cuda.Result, u Usage)

// Device is one accelerator as a worker process sees it.
type Device interface {
	// Snapshot describes the device to the guest.
	Snapshot() cuda.Device
	// NewContext creates a context; flags are CUctx_flags.
	NewContext(flags uint32) (Context, cuda.Result)
	// Inspect returns the layout that LoadModule would return for an image, without loading it: its variables have no
	// addresses. The caller may reuse the image after the return.
	Inspect(image []byte) (l *cuda.ModuleLayout, log string, r cuda.Result)
	// Capabilities returns the optional abilities of the device.
	Capabilities() Capabilities
	// Close cancels all work, waits until none runs, and frees everything. No other call may be in progress.
	Close() error
}

// Context owns memory, modules, streams, events, arrays and textures.
//
// The caller creates and destroys streams and events at will, so their handles are Go values here; the worker maps a
// guest's ids to them and rejects unknown ids.
type Context interface {
	// Alloc returns the address of size bytes of zeroed device memory, 512-byte aligned.
	// It may block while memory that was freed before is still in use.
	Alloc(size uint64) (uint64, cuda.Result)
	// Free releases an allocation of Alloc once all work submitted earlier has ended. It returns cuda.ErrorInvalidValue
	// for any other address.
	Free(addr uint64, done func()) cuda.Result

	// LoadModule loads an image (PTX text, or a format that the device accepts). The caller may reuse the image after
	// the return. log is for the guest's JIT error buffer.
	LoadModule(image []byte) (m Module, log string, r cuda.Result)

	// NewStream creates a stream; flags are CUstream_flags. The legacy default
	// stream is DefaultStream().
	NewStream(flags uint32, priority int32) (Stream, cuda.Result)
	DefaultStream() Stream
	NewEvent(flags uint32) (Event, cuda.Result)
	NewArray(d ArrayDesc) (Array, cuda.Result)
	// NewTexture creates a texture or surface that kernels of this context address by handle. A device that has
	// cuda.GivesHandles among its Quirks chooses the handle itself, and ignores this one.
	NewTexture(handle uint64, d TextureDesc) (Texture, cuda.Result)

	// Submit queues work to a stream. If Submit returns an error, done is not called; otherwise done is called once. A
	// Launch, Copy or Fill may be passed as a pointer, which saves an allocation; it is read during Submit only. If
	// device memory can be evicted, Submit may block until the process's memory is resident again, but it never waits
	// for a pending action of the guest.
	Submit(s Stream, w Work, done Done) cuda.Result

	// Synchronize calls done when everything submitted to the context so far has ended.
	Synchronize(done func(cuda.Result))
	// Capabilities returns the optional abilities of the context.
	Capabilities() ContextCapabilities
	// Err returns the sticky error of the context, or cuda.Success.
	Err() cuda.Result
	// SetLimit sets a CUlimit and returns the value in force.
	SetLimit(limit uint32, value uint64) (uint64, cuda.Result)
	// Destroy cancels work that has not started, ends running work, frees everything, then calls done.
	Destroy(done func())
}

// Module is a loaded image.
type Module interface {
	Layout() *cuda.ModuleLayout
	// Bind binds the texture or surface reference at an address of the module to a texture or surface, or to nil, for
	// later launches. It returns cuda.ErrorInvalidHandle for any other address, and for any address if the device's
	// modules have no references.
	Bind(reference uint64, t Texture) cuda.Result
	// Unload releases the module once work submitted before has ended.
	Unload()
}

// Stream is a queue of work that runs in order.
type Stream interface {
	// Query returns cuda.Success when all work of the stream has ended, else cuda.ErrorNotReady. Work of the streams that
	// keep order with the legacy default stream is also work of that one, but not the reverse.
	Query() cuda.Result
	// Ended calls done when the work has ended that Query covers now. Synchronize also waits for the legacy default stream.
	Ended(done func(cuda.Result))
	// Synchronize calls done when everything submitted to the stream so far has ended.
	Synchronize(done func(cuda.Result))
	// Destroy releases the stream once its work has ended.
	Destroy()
}

// Event marks a position in a stream.
type Event interface {
	// Synchronize calls done when the latest record has completed, at once if there was none.
	Synchronize(done func(cuda.Result))
	// Time returns when the latest record completed (CLOCK_MONOTONIC ns); the result is cuda.ErrorNotReady while the
	// record is pending, cuda.ErrorInvalidHandle if there was none.
	Time() (int64, cuda.Result)
	Destroy()
}

// Array is opaque memory for textures and copies.
type Array interface{ Destroy() }

// Texture is a texture object.
type Texture interface {
	// Handle returns the handle by which kernels address it.
	Handle() uint64
	Destroy()
}

// Work is one of Launch, Copy, Fill (or pointers to these), Record, WaitEvent, HostFunc, Replay.
type Work interface{ work() }

// Turn reports when a device may execute work that was submitted to it. Any goroutine may call it.
type Turn interface {
	// Held reports whether work of a class may hold its engine now.
	Held(c Class) bool
	// Await blocks until Held, or until stop returns true.
	Await(c Class, stop func() bool)
	// Queued counts work of a class that waits for its engine behind other work: by is 1 when such a wait begins and -1
	// when it ends.
	Queued(c Class, by int)
}

// Spent receives each period during which a part of a piece of work held an engine, before the engine is released and,
// for long work, at intervals in between. Calls don't overlap; a Spent must not block or call the device. The Usage
// that Done receives is as long as all of these together; for work executed in one part, the device may report to Done
// alone.
type Spent func(u Usage)

// Launch runs a kernel: Function is the index in the module's layout. Params is read during Submit only.
type Launch struct {
	Module      Module
	Function    int
	Grid, Block [3]uint32
	SharedBytes uint32
	Cooperative bool      // its blocks may synchronize with each other
	Cluster     [3]uint32 // dimensions of the clusters of blocks that may synchronize; zeros: none
	Params      []byte
	Spent       Spent // may be nil; a device that does not execute work in parts doesn't call it
}

// End is one end of a copy: host memory (Host, already bounds-checked against
// the segment), device memory (Address; may be an arena address), or an array.
type End struct {
	Host          []byte // the whole extent that the copy may access, starting at its first byte
	Address       uint64
	Array         Array
	X, Y, Z       uint64 // arrays only; X in bytes
	Pitch, Height uint64 // bytes a row, rows a slice
}

// Copy copies a box of Width bytes × Height rows × Depth slices. Host memory must stay mapped until done.
type Copy struct {
	Dst, Src             End
	Width, Height, Depth uint64
	Spent                Spent // as in Launch
}

// Fill sets Height rows of Width elements, Pitch bytes apart.
type Fill struct {
	Address              uint64
	Width, Height, Pitch uint64
	Value                uint32
	ElementSize          uint32
	Spent                Spent // as in Launch
}

// Record completes an event when the work before it in the stream has ended.
type Record struct{ Event Event }

// WaitEvent holds back later work of the stream until the event's latest record has completed.
type WaitEvent struct{ Event Event }

// HostFunc holds back later work of the stream: Due is called, and must not block, when the work before it has ended;
// the stream continues when finished is called.
type HostFunc struct {
	Due func(status cuda.Result, finished func())
}

// Replay executes the whole of a graph of the context (see Grapher).
type Replay struct {
	Graph Graph
	Spent Spent // as in Launch, with the Class of the engine that the part held
}

// ArrayDesc describes an array: elements of Channels × format; zero Height or Depth as in CUDA.
type ArrayDesc struct {
	Width, Height, Depth uint64
	Format, Channels     uint32
	Flags                uint32
}

// TextureDesc describes a texture object (see CUDA_RESOURCE_DESC, CUDA_TEXTURE_DESC), or a surface object, which uses
// the Array only.
type TextureDesc struct {
	Surface              bool
	Array                Array  // resource type array
	Address              uint64 // linear and pitch-linear
	Width, Height, Pitch uint64 // elements, rows, bytes
	Format, Channels     uint32
	AddressMode          [3]uint32
	FilterMode, Flags    uint32
	BorderColor          [4]float32
}

func (Launch) work()    {}
func (Copy) work()      {}
func (Fill) work()      {}
func (Record) work()    {}
func (WaitEvent) work() {}
func (HostFunc) work()  {}
func (Replay) work()    {}

// File is one of the program's standard files that a context has output for.
type File uint32

const (
	Stdout File = 1 // printf output of kernels
	Stderr File = 2 // messages of failed device assertions
)

// ExportedRegion is a part of a file that the processes of a domain share and that backs an exported allocation.
type ExportedRegion struct {
	File   *os.File // owned by the caller
	Offset uint64
	ID     uint32 // identifies the part; chosen by the caller
	Gone   func() // called once the memory has been freed
}

// Kinds of tensor descriptions.
const (
	TiledTensor     = 0
	ColumnsOfTensor = 1
	MovedTensor     = 2 // an existing description, for a new address
)

// ShareToken identifies memory that another process of the domain exports.
type ShareToken struct {
	ID  uint32
	Tag uint64
}

// GraphNode is a piece of work in a graph: a pointer to a Launch, Copy or Fill, a HostFunc, or nil for an empty node.
// The graph owns the pointed-to value from then on.
type GraphNode struct {
	Work  Work
	After []uint32 // indices of the nodes that it depends on, all less than its own
}

// Graph is work that can be executed repeatedly. An object that it uses may be destroyed in the meantime: a Replay is
// then refused like the work that names the object.
type Graph interface {
	// Destroy releases the graph; a Replay that was submitted still ends.
	Destroy()
}
