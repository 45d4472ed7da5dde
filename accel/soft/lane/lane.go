// Package lane runs PTX kernels on the CPU. It compiles them when they are needed (package compile) and keeps the
// programs for later launches (package exec).
//
// Callers: the software accelerator.
//
// Trust boundary: kernels and their arguments are hostile; see the packages compile and exec.
package lane

import (
	"sync"
	"sync/atomic"

	"pegasus/accel/ptx"
	"pegasus/accel/soft/lane/compile"
	"pegasus/accel/soft/lane/exec"
	"pegasus/accel/soft/lane/ir"
)

// Source returns the place in the source that .loc gives for a line of the PTX, or "".
func (k *Kernel) Source(line int) string { return k.fn.Source(line) }

// Image is an instance of a module: its variables have addresses.
type Image struct {
	layout   *compile.Layout
	named    map[string]*ptx.Var
	kernels  map[string]*Kernel
	compiled bool // all kernels were compiled when the image was loaded
}

// Load places and initialises the module's variables in memory from alloc.
func Load(m *ptx.Module, alloc func(size, align uint64) (addr uint64, mem []byte, err error)) (*Image, error) {
	layout, err := compile.Place(m, alloc)
	if err != nil {
		return nil, err
	}
	im := &Image{layout: layout, named: map[string]*ptx.Var{}, kernels: map[string]*Kernel{}}
	for _, v := range m.Globals {
		im.named[v.Name] = v
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
	return im.layout.Address[v], uint64(v.Size), true
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
	prog   atomic.Pointer[exec.Program] // nil: not compiled, or dropped
	known  atomic.Bool                  // the kernel was compiled, or can't be: err, local and awaits are set
	recent atomic.Bool                  // it was launched since dropping it was last considered

	mu     sync.Mutex // held while it is compiled
	err    error
	local  int  // bytes of local memory a thread
	awaits bool // see ir.Program.MayPoll
}

// Compile compiles the kernel now, rather than at its first launch.
func (k *Kernel) Compile() error {
	_, err := k.program()
	return err
}

// program returns the kernel's compiled program, and compiles it if need be.
func (k *Kernel) program() (*exec.Program, error) {
	if p := k.prog.Load(); p != nil {
		return p, nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if p := k.prog.Load(); p != nil || k.err != nil {
		return p, k.err
	}
	c, err := compile.Kernel(k.image.layout, k.fn)
	if err != nil {
		k.err = err
		k.known.Store(true)
		return nil, err
	}
	p := exec.Bind(c)
	if !k.known.Load() {
		k.local, k.awaits = p.LocalBytes, p.MayPoll
		k.known.Store(true)
	}
	k.prog.Store(p)
	compiledNow.keep(k, p.Bytes())
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
		return ir.MaxThreads
	}
	return MostThreads(k.local)
}

// MayNotFit reports whether the kernel has so many registers that the file of a group may have no room for those that are
// needed at a time, or is so large that it may have too many instructions. Compile finds that out.
func (k *Kernel) MayNotFit() bool {
	large := k.fn.Size > ptx.InlineLimit && k.fn.Size < ptx.Unbounded
	return large || len(k.fn.Regs) > compile.MaxRowBytes/(8*ir.MaxLanes)
}

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
	if !k.recent.Load() {
		k.recent.Store(true)
	}
	return prog.Run(l)
}
