// Package lane runs PTX kernels on the CPU. Each instruction works on up to 256 threads of a block in lockstep, with a
// row of lanes per register; threads that part meet again at the immediate post-dominator; blocks run in parallel.
//
// Callers: the software accelerator.
//
// Trust boundary: kernels and their arguments are hostile. Every memory access is checked against the launch's Memory,
// and a kernel can always be cancelled.
package lane

import (
	"fmt"
	"io"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"pegasus/accel/ptx"
)

// Memory is the device memory that a launch may access.
type Memory interface {
	// Region returns the live allocation that contains addr: its base address and its bytes, nil if there is none. The
	// bytes stay valid during the launch. It may be called from several goroutines.
	Region(addr uint64) (base uint64, mem []byte)
	// Beside returns the memory for an access of n bytes at an address outside all allocations, nil if the access is a
	// fault. The result is valid for this access alone.
	Beside(addr, n uint64) []byte
}

// Launch is one execution of a kernel.
type Launch struct {
	Grid, Block [3]uint32
	SharedBytes uint32 // dynamic shared memory
	Cooperative bool   // all blocks may synchronize
	Stack       uint64 // bytes that a thread may use for calls; as much as there is room for, and at least leastStack
	Heap        *Heap  // of malloc and free; nil: there is none
	Params      []byte // at least the kernel's ParamBytes
	Cores       int    // goroutines; less than one is one
	MostCores   int    // upper bound of the cores with those of Growth
	Growth      *Growth
	Cancel      *atomic.Bool
	// Yield reports whether the launch is to stop for now. Its cores call it at least once in a millisecond or so,
	// concurrently. When all have stopped, one of them calls Resume, which blocks until they are to continue. nil: the
	// launch is never interrupted.
	Yield   func() bool
	Resume  func()
	Meter   *Meter // of the processor time that the cores take; nil: none
	Memory  Memory
	Texture func(handle uint64) *Texture // returns textures and surfaces, also for references; nil: there are none
	// Output of vprintf, and messages of __assertfail, one call to Write each; nil discards.
	Stdout, Stderr io.Writer
	Profile        *Profile // to add to; nil: none
	Random         uint64   // chooses an order of a block's warps; 0: the one that is most like a GPU's
}

// Fault is the reason why a launch ended early.
type Fault struct {
	Result int32 // CUDA result number
	Kernel string
	Block  [3]uint32
	Thread [3]uint32
	Addr   uint64
	Line   int // of the PTX; 0: unknown
	Msg    string
}

func (f *Fault) Error() string {
	return fmt.Sprintf("kernel %s block %v thread %v, ptx line %d: %s (address %#x)", f.Kernel, f.Block, f.Thread, f.Line, f.Msg, f.Addr)
}

// Source returns the place in the source that .loc gives for a line of the PTX, or "".
func (k *Kernel) Source(line int) string { return k.fn.Source(line) }

// Limits of a launch.
const (
	maxSharedBytes = 228 << 10
	// MaxLocalBytes bounds the local memory of a block, which lies in the memory of the host.
	MaxLocalBytes = 64 << 20
)

// Image is an instance of a module: its variables have addresses.
type Image struct {
	module   *ptx.Module
	address  map[*ptx.Var]uint64
	named    map[string]*ptx.Var
	kernels  map[string]*Kernel
	code     uint64                  // address of the first function
	samplers map[uint64]*ptx.Sampler // by address
	opaque   map[uint64]ptx.Opaque   // the kinds of variables of opaque types, by address
	consts   []span                  // where constants lie
	compiled bool                    // all kernels were compiled when the image was loaded
}

// span is a range of addresses.
type span struct{ addr, size uint64 }

// Load places and initialises the module's variables in memory from alloc.
func Load(m *ptx.Module, alloc func(size, align uint64) (addr uint64, mem []byte, err error)) (*Image, error) {
	im := &Image{module: m, address: map[*ptx.Var]uint64{}, named: map[string]*ptx.Var{}, kernels: map[string]*Kernel{},
		samplers: map[uint64]*ptx.Sampler{}, opaque: map[uint64]ptx.Opaque{},
		code: codeWindow + images.Add(1)%maxImages*codeSpan}
	mem := map[*ptx.Var][]byte{}
	for _, v := range m.Globals {
		addr, b, err := alloc(uint64(max(v.Size, 1)), uint64(max(v.Align, 16)))
		if err != nil {
			return nil, fmt.Errorf("place variable %s: %w", v.Name, err)
		}
		im.address[v], im.named[v.Name], mem[v] = addr, v, b
		if v.Opaque == ptx.SamplerRef {
			im.samplers[addr] = &v.Sampler
		}
		if v.Opaque != ptx.Plain {
			im.opaque[addr] = v.Opaque
		}
		if v.Space == ptx.Const {
			im.consts = append(im.consts, span{addr, uint64(v.Size)})
		}
		clear(b)
		copy(b, v.Init)
	}
	for _, v := range m.Globals {
		for _, r := range v.Refs {
			a := im.valueOf(&r)
			for i := range r.Size {
				mem[v][r.Offset+int64(i)] = byte(a >> (8*i + r.Shift))
			}
		}
	}
	size := 0
	for _, f := range m.Kernels {
		im.kernels[f.Name] = &Kernel{image: im, fn: f}
		size = min(size+f.Size, ptx.Unbounded)
	}
	if im.compiled = size <= compiledAtOnce; im.compiled {
		for _, k := range im.kernels {
			_ = k.Compile() // the caller compiles it again and gets the error
		}
	}
	return im, nil
}

// Compiled reports whether Load compiled all kernels, so that Compile returns their errors at once.
func (im *Image) Compiled() bool { return im.compiled }

// compiledAtOnce is the size, in total, up to which a module's kernels are compiled when it is loaded, so that first
// launches need not. Of a larger module few kernels may ever be launched.
const compiledAtOnce = 1 << 13

// Global returns the address and size of a variable of the module.
func (im *Image) Global(name string) (addr, size uint64, ok bool) {
	v := im.named[name]
	if v == nil {
		return 0, 0, false
	}
	return im.address[v], uint64(v.Size), true
}

// Kernel returns the entry of that name.
func (im *Image) Kernel(name string) (*Kernel, error) {
	k := im.kernels[name]
	if k == nil {
		return nil, &ptx.Error{Msg: "no kernel " + name, Result: ptx.ErrNotFound}
	}
	return k, nil
}

// Kernel is an entry of an image. It is compiled when it is first needed, if not before, and again if its program was dropped
// meanwhile.
type Kernel struct {
	image  *Image
	fn     *ptx.Func
	prog   atomic.Pointer[program] // nil: not compiled, or dropped
	known  atomic.Bool             // the kernel was compiled, or can't be: err, local and awaits are set
	recent atomic.Bool             // it was launched since dropping it was last considered

	mu     sync.Mutex // held while it is compiled
	err    error
	local  int  // bytes of local memory a thread
	awaits bool // see program

	// idle has workers for later launches. A pool lets those of kernels that aren't launched any more be collected:
	// each may hold megabytes.
	idle sync.Pool
}

// Compile compiles the kernel now, rather than at its first launch.
func (k *Kernel) Compile() error {
	_, err := k.program()
	return err
}

// program returns the kernel's compiled program, and compiles it if need be.
func (k *Kernel) program() (*program, error) {
	if p := k.prog.Load(); p != nil {
		return p, nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if p := k.prog.Load(); p != nil || k.err != nil {
		return p, k.err
	}
	c, err := compile(k.image, k.fn)
	if err != nil {
		k.err = err
		k.known.Store(true)
		return nil, err
	}
	p := bind(c)
	if !k.known.Load() {
		k.local, k.awaits = p.local, p.awaits
		k.known.Store(true)
	}
	k.prog.Store(p)
	compiledNow.keep(k, p.bytes())
	return p, nil
}

// facts compiles the kernel unless that was done before, and reports whether it can be compiled.
func (k *Kernel) facts() bool {
	if !k.known.Load() {
		return k.Compile() == nil
	}
	return k.err == nil
}

// Compiled reports whether Compile returns at once.
func (k *Kernel) Compiled() bool {
	return k.prog.Load() != nil || k.known.Load() && k.err != nil
}

// Independent reports whether no thread can be waiting for stores of other blocks, or of other work of the device. It
// compiles the kernel.
func (k *Kernel) Independent() bool { return k.facts() && !k.awaits }

// MostThreads returns how many threads a block may have so that their local memory fits in MaxLocalBytes. It compiles the
// kernel; one that can't be compiled has no limit.
func (k *Kernel) MostThreads() int {
	if !k.facts() {
		return maxThreads
	}
	return MostThreads(k.local)
}

// MostThreads returns how many threads with so many bytes of local memory each a block may have.
func MostThreads(local int) int { return min(MaxLocalBytes/max(local, 1), maxThreads) }

// MayNotFit reports whether the kernel has so many registers that the file of a group may have no room for those that are
// needed at a time, which Compile finds out.
func (k *Kernel) MayNotFit() bool { return len(k.fn.Regs) > maxRowBytes/(8*maxLanes) }

// Func returns the kernel's description.
func (k *Kernel) Func() *ptx.Func { return k.fn }

// Run executes a launch and returns nil when all blocks have ended, or the fault that ended it early. After Cancel is
// set it returns within about a millisecond, with ptx.ErrLaunchTimeout.
func (k *Kernel) Run(l *Launch) *Fault {
	prog, err := k.program()
	if err != nil {
		f := &Fault{Result: ptx.ErrInvalidPTX, Kernel: k.fn.Name, Msg: err.Error()}
		if e, ok := err.(*ptx.Error); ok {
			f.Result, f.Line, f.Msg = e.Result, e.Line, e.Msg
		}
		return f
	}
	if f := k.check(l); f != nil {
		return f
	}
	if !k.recent.Load() {
		k.recent.Store(true)
	}
	r := runs.Get().(*run)
	r.prog = prog
	r.launch, r.total, r.meeting = l, uint64(l.Grid[0])*uint64(l.Grid[1])*uint64(l.Grid[2]), 8
	r.next, r.begun = atomic.Uint64{}, atomic.Int32{}
	cores := int(min(uint64(max(l.Cores, 1)), r.total))
	most := cores
	if l.Growth != nil {
		most = max(cores, int(min(uint64(max(l.MostCores, 1)), r.total)))
	}
	r.watches = append(r.watches[:0], make([]stopwatch, most)...)
	r.pause.begin(cores, most)
	if fault := k.runOn(r, cores, most); fault != nil {
		return fault
	}
	r.launch, r.prog = nil, nil
	runs.Put(r)
	return nil
}

// runs are reused: a launch may be brief. Only runs that ended well are, so all fields but those that Run sets are
// unchanged.
var runs = sync.Pool{New: func() any { return new(run) }}

func (k *Kernel) runOn(r *run, cores, most int) *Fault {
	if most == 1 {
		k.work(r)
		return r.fault
	}
	var wg sync.WaitGroup
	for range cores - 1 {
		wg.Go(func() { k.guarded(r) })
	}
	g := r.launch.Growth
	if grows := most > cores; grows {
		g.begin(k, r, most-cores)
		k.guarded(r)
		g.end()
	} else {
		k.guarded(r)
	}
	wg.Wait()
	if r.thrown != nil {
		panic(r.thrown)
	}
	return r.fault
}

// guarded is work with a recover. A fault of the machine stops the other cores as well, and then becomes a panic of
// Run, for its caller to recover.
func (k *Kernel) guarded(r *run) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.thrown = p
			r.stop.Store(true)
		}
	}()
	k.work(r)
}

func (k *Kernel) check(l *Launch) *Fault {
	bad := func(result int32, msg string) *Fault { return &Fault{Result: result, Kernel: k.fn.Name, Msg: msg} }
	threads := uint64(l.Block[0]) * uint64(l.Block[1]) * uint64(l.Block[2])
	switch {
	case threads == 0 || l.Block[0] > maxThreads || l.Block[1] > maxThreads || l.Block[2] > maxThreads || threads > maxThreads:
		return bad(ptx.ErrInvalidValue, "block size out of range")
	case l.Grid[0] == 0 || l.Grid[1] == 0 || l.Grid[2] == 0 || l.Grid[0] > 1<<31-1 || l.Grid[1] > 65535 || l.Grid[2] > 65535:
		return bad(ptx.ErrInvalidValue, "grid size out of range")
	case len(l.Params) < k.fn.ParamBytes:
		return bad(ptx.ErrInvalidValue, "too few bytes of parameters")
	case k.fn.ReqNTid[0] != 0 && k.fn.ReqNTid != l.Block:
		return bad(ptx.ErrInvalidValue, "block is not of the size that the kernel requires")
	case threads*uint64(k.local) > MaxLocalBytes:
		return bad(ptx.ErrLaunchOutOfResources, "too much local memory")
	case uint64(l.SharedBytes)+uint64(k.fn.StaticShared) > maxSharedBytes:
		return bad(ptx.ErrLaunchOutOfResources, "too much shared memory")
	}
	return nil
}

// run is the state that the workers of a launch share.
type run struct {
	launch *Launch
	prog   *program
	total  uint64
	next   atomic.Uint64 // block to run next
	stop   atomic.Bool   // after a fault

	// meeting is the workspace of the grid's barrier: 32 bits of size, 32 of barrier.
	meeting uint64

	printing sync.Mutex // held while something is written to Stdout or Stderr

	pause   pause
	watches []stopwatch  // one a core
	begun   atomic.Int32 // cores that have

	mu     sync.Mutex
	fault  *Fault // guarded by mu; the first one
	thrown any    // guarded by mu; a panic
}

func (r *run) fail(f *Fault) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fault == nil {
		r.fault = f
	}
	r.stop.Store(true) // now that no worker that stops for it can be first
}

// cancelled reports whether the launch is to end. It blocks while the launch is paused.
func (r *run) cancelled() bool {
	if r.pause.due.Load() {
		r.pause.stop(r.launch.Resume)
	}
	return r.stop.Load() || r.launch.Cancel != nil && r.launch.Cancel.Load()
}

// look is cancelled for cores that have computed for a while: it also checks whether the launch is to pause, and
// measures.
func (r *run) look(s *stopwatch) (cancelled bool) {
	l := r.launch
	if m := l.Meter; m != nil && m.On() {
		s.measure(m)
	}
	if l.Yield != nil && l.Yield() {
		r.pause.stop(l.Resume)
	}
	return r.cancelled()
}
