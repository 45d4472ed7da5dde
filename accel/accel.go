// Package accel says what an accelerator must do for Pegasus, whatever it is made of.
//
// A worker process opens one Device and creates contexts on it for its guest
// process. The worker decides when work may be submitted (the gate) and to
// whom it is charged; a Device only executes. Calls come from one goroutine
// (the worker's poller), in the guest's program order; nothing here blocks,
// except where a comment says so. What takes time ends in a Done callback.
package accel

import (
	"os"
	"time"

	"pegasus/cuda"
)

// Class tells apart the engines that are scheduled and accounted separately.
type Class uint8

const (
	Compute    Class = iota
	CopyIn           // host to device
	CopyOut          // device to host
	CopyDevice       // device to device, fills
	NumClasses
)

// Usage is the accelerator time that one piece of work held an engine for. Of work that shares an engine at the same time, one
// piece is charged.
type Usage struct {
	Class      Class
	Start, End int64 // CLOCK_MONOTONIC nanoseconds; equal if no engine was held
}

// Done is called once when a piece of work has ended, from any goroutine, and
// maybe before Submit returns. It must not block. Work that had to wait for
// another piece is reported after it. After an error of a context all its
// further work ends with that error without being executed.
type Done func(r cuda.Result, u Usage)

// Device is one accelerator as a worker process sees it.
type Device interface {
	// Snapshot describes the device to the guest.
	Snapshot() cuda.Device
	// NewContext creates a context; flags are CUctx_flags.
	NewContext(flags uint32) (Context, cuda.Result)
	// Inspect says what an image offers, as LoadModule would, without loading it
	// anywhere: its variables have no addresses. The image is the caller's again on return.
	Inspect(image []byte) (l *cuda.ModuleLayout, log string, r cuda.Result)
	Close() error
}

// Context owns memory, modules, streams, events, arrays and textures.
//
// Streams and events are created and destroyed by the caller's choice, so
// handles are Go values here; mapping a guest's ids to them, and refusing
// strange ones, is the worker's business.
type Context interface {
	// Alloc returns the address of size bytes of zeroed device memory, 512-byte aligned.
	// It may block while memory that was freed before is still in use.
	Alloc(size uint64) (uint64, cuda.Result)
	// Free releases what Alloc returned, once all work submitted before has ended.
	// An address that Alloc did not return is cuda.ErrorInvalidValue.
	Free(addr uint64, done func()) cuda.Result

	// LoadModule loads an image (PTX text, or what the device accepts). The
	// image is the caller's again on return. log is for the guest's JIT error buffer.
	LoadModule(image []byte) (m Module, log string, r cuda.Result)

	// NewStream creates a stream; flags are CUstream_flags. The legacy default
	// stream is DefaultStream().
	NewStream(flags uint32, priority int32) (Stream, cuda.Result)
	DefaultStream() Stream
	NewEvent(flags uint32) (Event, cuda.Result)
	NewArray(d ArrayDesc) (Array, cuda.Result)
	// NewTexture makes handle a texture or surface that kernels of this context can use. Where the device
	// chooses handles, the Texture is a Handled, and handle is not used.
	NewTexture(handle uint64, d TextureDesc) (Texture, cuda.Result)

	// Submit queues work to a stream. An error that can be told at once is
	// returned, and done is not called; else done will be called. A Launch, Copy
	// or Fill may be passed as a pointer, which saves an allocation; it is read
	// during Submit only. Where memory may leave the device, it may block until that of the
	// process is back, though not for what the guest has yet to do.
	Submit(s Stream, w Work, done Done) cuda.Result

	// Synchronize calls done when everything submitted to the context so far has ended.
	Synchronize(done func(cuda.Result))
	// Err is the sticky error of the context, or cuda.Success.
	Err() cuda.Result
	// SetLimit sets a CUlimit and returns the value in force.
	SetLimit(limit uint32, value uint64) (uint64, cuda.Result)
	// Destroy cancels what has not started, ends what has, frees everything,
	// then calls done.
	Destroy(done func())
}

// Module is a loaded image.
type Module interface {
	Layout() *cuda.ModuleLayout
	// Unload releases the module once work submitted before has ended.
	Unload()
}

// Stream is a queue of work that runs in order.
type Stream interface {
	// Query is cuda.Success when all its work has ended, else cuda.ErrorNotReady.
	Query() cuda.Result
	// Synchronize calls done when everything submitted to the stream so far has ended.
	Synchronize(done func(cuda.Result))
	// Destroy releases the stream once its work has ended.
	Destroy()
}

// Event marks a place in a stream.
type Event interface {
	// Synchronize calls done when the latest record has completed, at once if there was none.
	Synchronize(done func(cuda.Result))
	// Time is when the latest record completed (CLOCK_MONOTONIC ns): cuda.ErrorNotReady while
	// pending, cuda.ErrorInvalidHandle if never recorded.
	Time() (int64, cuda.Result)
	Destroy()
}

// Array is opaque memory for textures and copies.
type Array interface{ Destroy() }

// Texture is a texture object.
type Texture interface{ Destroy() }

// Handled is a Texture of a device that chooses the handles that kernels use.
type Handled interface {
	Texture
	Handle() uint64
}

// Work is one of Launch, Copy, Fill (or pointers to these), Record, WaitEvent, HostFunc, Replay.
type Work interface{ work() }

// Turn tells a device when it may execute what was submitted to it. Any goroutine may call it.
type Turn interface {
	// Held reports whether work of a class may hold its engine now.
	Held(c Class) bool
	// Await blocks until Held, or until stop returns true.
	Await(c Class, stop func() bool)
	// Queued notes that work of a class waits for its engine behind other work, with 1, and with -1 that it no longer does.
	Queued(c Class, by int)
}

// Spent receives each time that an engine was held for a part of a piece of work, before the engine is given back and, of work
// that goes on for long, meanwhile. Calls don't overlap; it must not block or call the device. Done's Usage is as long as all of these together; of work that is done in
// one part, Done alone may tell.
type Spent func(u Usage)

// Launch runs a kernel: function is the index in the module's layout. Params is
// read during Submit only.
type Launch struct {
	Module      Module
	Function    int
	Grid, Block [3]uint32
	SharedBytes uint32
	Cooperative bool      // its blocks may meet
	Cluster     [3]uint32 // sides of the clusters of blocks that may meet; zeros: none
	Params      []byte
	Spent       Spent // may be nil; a device that knows no parts doesn't call it
}

// End is one end of a copy: host memory (Host, already bounds-checked against
// the segment), device memory (Address; may be an arena address), or an array.
type End struct {
	Host          []byte // the whole extent that the copy may touch, from its first byte on
	Address       uint64
	Array         Array
	X, Y, Z       uint64 // arrays only; X in bytes
	Pitch, Height uint64 // bytes a row, rows a slice
}

// Copy moves a box of Width bytes × Height rows × Depth slices. Host memory
// must stay mapped until done.
type Copy struct {
	Dst, Src             End
	Width, Height, Depth uint64
	Spent                Spent // as of a Launch
}

// Fill sets Height rows of Width elements, Pitch bytes apart.
type Fill struct {
	Address              uint64
	Width, Height, Pitch uint64
	Value                uint32
	ElementSize          uint32
	Spent                Spent // as of a Launch
}

// Record completes an event when the work before it in the stream has ended.
type Record struct{ Event Event }

// WaitEvent holds back later work of the stream until the event's latest record has completed.
type WaitEvent struct{ Event Event }

// HostFunc holds back later work of the stream: Due is called (not blocking)
// when the work before it has ended, and the stream goes on when finished is called.
type HostFunc struct {
	Due func(status cuda.Result, finished func())
}

// Replay does all that a graph of the context has (see Grapher).
type Replay struct {
	Graph Graph
	Spent Spent // as of a Launch, with the Class of the engine that a part held
}

// ArrayDesc describes an array: elements of Channels × format; zero Height or Depth as in CUDA.
type ArrayDesc struct {
	Width, Height, Depth uint64
	Format, Channels     uint32
	Flags                uint32
}

// TextureDesc describes a texture object (see CUDA_RESOURCE_DESC, CUDA_TEXTURE_DESC), or a surface object, which is an
// array and nothing else.
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

// File is one of the program's files that a context has text for.
type File uint32

const (
	Stdout File = 1 // what kernels print
	Stderr File = 2 // assertions that failed
)

// Teller is the optional ability of a Context to have text for the program.
type Teller interface {
	// OnText sets what is called when there begins, or ceases, to be text. It
	// may be called from any goroutine and must not block. It is set before anything is submitted.
	OnText(func(waits bool))
	// MayTell says whether a kernel was launched that can have text.
	MayTell() bool
	// ReadText takes the oldest text, as much as fits and belongs to one file.
	// left is not less than what is left. Any goroutine may call it.
	ReadText(to []byte) (n int, of File, left uint64)
}

// Attacher is the optional ability of a Context to use device memory that other
// processes use, too: a part of a file that the processes of a domain share.
type Attacher interface {
	// Attach makes bytes of the file from offset on accessible to the context, and
	// returns where. The file stays the caller's.
	Attach(file *os.File, offset, bytes uint64) (addr uint64, r cuda.Result)
	// Detach ends that once all work submitted before has ended, then calls done. The
	// end of the context does so, too.
	Detach(addr uint64, done func()) cuda.Result
}

// Commoner is the optional ability of a Device to count memory that belongs to a domain
// and not to one of its processes.
type Commoner interface {
	// ReserveCommons says how many bytes of that the domain has now. It returns
	// false, and changes nothing, if that is more than before and there is no room.
	ReserveCommons(bytes uint64) bool
}

// Loan is a part of a file that the processes of a domain share, which memory was moved to.
type Loan struct {
	File   *os.File // stays the caller's
	Offset uint64
	ID     uint32 // the caller's name for it
	Gone   func() // is called when the memory is no more
}

// Lender is the optional ability of a Device to let other processes of the domain have a
// part in what Context.Alloc returned, which keeps its address.
type Lender interface {
	// Lend has the memory round an allocation lie in a part of a file that find finds, unless it does already, and says
	// by the ID of that part which it is, at which byte of it the allocation begins, and how long that is. It waits until nothing uses
	// any memory; cuda.ErrorNotReady says that this may depend on the guest.
	Lend(addr uint64, find func(bytes uint64) (Loan, cuda.Result)) (id uint32, at, bytes uint64, r cuda.Result)
}

// How a tensor is described.
const (
	TiledTensor     = 0
	ColumnsOfTensor = 1
	MovedTensor     = 2 // as it was, at another address
)

// TensorMapper is the optional ability of a Context to describe tensors as the device's kernels want it.
type TensorMapper interface {
	TensorMap(a *cuda.TensorMapArgs) (m [16]uint64, r cuda.Result)
}

// Ticket is what memory that another process of the domain gives is known by.
type Ticket struct {
	ID  uint32
	Tag uint64
}

// Giver is the optional ability of a Device to give other processes of the domain a part in its memory by itself.
type Giver interface {
	// Give says by what ticket others get a part in what Context.Alloc returned, and how long that is. The ticket is good as long as the memory is.
	Give(addr uint64) (t Ticket, bytes uint64, r cuda.Result)
	// GiveMemory says that of memory without an address.
	GiveMemory(m Memory) (Ticket, cuda.Result)
	// TakeMemory makes such memory of another process this one's, too; it counts like memory that was created. It may block for a moment.
	TakeMemory(t Ticket) (m Memory, bytes uint64, r cuda.Result)
}

// Borrower is the optional ability of a Context to use what a Giver of another process gave.
type Borrower interface {
	// Borrow makes it accessible to the context, and returns where and how much it is. It may block for a moment.
	Borrow(t Ticket) (addr, bytes uint64, r cuda.Result)
	// Detach ends that once all work submitted before has ended, then calls done. The end of the context does so, too.
	Detach(addr uint64, done func()) cuda.Result
}

// Sharer is the optional ability of a Device to say how much memory is left of what processes share.
type Sharer interface {
	MemoryFree() uint64
}

// Profiler is the optional ability of a Device to account for what kernels do.
type Profiler interface {
	// Profile begins with that.
	Profile()
	// Report says, in lines of text for the program's user, what was found so far.
	Report() string
}

// Checks are what a Checker looks for.
type Checks struct {
	Bounds bool   // accesses beside allocations, by single bytes
	Order  bool   // warps of a block that need a barrier: they run in an order that Seed chooses
	Seed   uint64 // the same seed gives the same order
}

// Checker is the optional ability of a Device to find mistakes of kernels that have no consequences on most devices.
type Checker interface {
	// Check begins with these checks, for later allocations and launches. Earlier ones go on without them.
	Check(c Checks)
}

// Binder is the optional ability of a Module to have references to textures and surfaces.
type Binder interface {
	// Bind makes the reference at an address of the module stand for a texture or surface, or for nothing, in what is
	// launched from now on.
	Bind(reference uint64, t Texture) cuda.Result
}

// Queue is the optional ability to say how much is submitted and has not ended:
// pieces of work, and waits of one piece for another. It grows with the memory
// that they take, so that a caller can bound it. While it is 0 no Done is being
// called, and a Record or WaitEvent ends before its Submit returns.
type Queue interface {
	Queued() int
}

// Aborter is the optional ability to end what is being executed and whatever
// comes after it. It may be called from any goroutine, also during a Submit that
// executes the work itself.
type Aborter interface {
	Abort()
}

// Limiter is the optional ability to change how long a kernel may run, also of
// the one that runs. It may be called from any goroutine; d > 0.
type Limiter interface {
	LimitKernels(d time.Duration)
}

// Predictor is the optional ability to say how long a launch will hold the
// compute engine, in nanoseconds; 0 if unknown.
type Predictor interface {
	Predict(w Work) int64
}

// Preparer is the optional ability of a Context to do beforehand what takes processor time and no engine, such as compiling a
// kernel for its first launch. It may block for as long as that takes.
type Preparer interface {
	Prepare(w *Launch)
	// Prepared reports whether Prepare has nothing to do.
	Prepared(w *Launch) bool
}

// Grapher is the optional ability of a Context to keep a graph of work and do it
// all at once, as one piece: a Replay, which comes after what is in its stream and
// after the graph's Replay before. Its Usage is of Class Compute if a kernel is in
// it, else CopyDevice, and as long as the time that engines were held for it.
type Grapher interface {
	// NewGraph takes a graph. If before is not nil, the new graph takes its place,
	// and comes after its Replays; before is destroyed unless this fails.
	// cuda.ErrorNotSupported says that there is work in it that the device takes
	// piece by piece only.
	NewGraph(nodes []GraphNode, before Graph) (Graph, cuda.Result)
}

// GraphNode is a piece of work in a graph: a pointer to a Launch, Copy or Fill, a
// HostFunc, or nil for nothing. What it points to is the graph's from then on.
type GraphNode struct {
	Work  Work
	After []uint32 // the places of the nodes that it comes after, less than its own
}

// Graph is work that can be done again and again. What it uses may be gone by
// then: a Replay is refused like the work that names it.
type Graph interface {
	// Destroy releases the graph; a Replay that was submitted still ends.
	Destroy()
}
