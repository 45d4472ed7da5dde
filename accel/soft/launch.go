package soft

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"pegasus/accel"
	"pegasus/accel/soft/engine"
	"pegasus/accel/soft/lane"
	"pegasus/cuda"
)

// Limits of a launch, as the device's attributes report them.
const (
	maxBlockThreads = 1024
	maxBlockX       = 1024
	maxBlockZ       = 64
	maxGridX        = 1<<31 - 1
	maxGridYZ       = 65535
	maxShared       = 48 << 10 // per block, unless the function's attribute raises it
	maxSharedOptin  = 64 << 10

	// maxRegisters is the largest register count reported for a kernel: the largest block fits with it, so no block is
	// refused.
	maxRegisters = registerFile / maxBlockThreads
	registerFile = 64 << 10
)

// code is a kernel that can be run.
type code interface {
	// prepare compiles the kernel, unless that was done.
	prepare() error
	// prepared reports whether the kernel is compiled.
	prepared() bool
	// mostThreads returns the maximum number of threads of a block, once the kernel is compiled.
	mostThreads() int
	run(*run) *fault
	// independent reports whether a launch waits for no other work.
	independent() bool
}

// run is one execution of a kernel. It ends soon after Cancel is set.
type run struct{ lane.Launch }

// fault is the reason why a kernel ended early.
type fault struct {
	result  cuda.Result
	block   [3]uint32
	thread  [3]uint32
	address uint64
	line    int    // of the PTX; 0: unknown
	source  string // position given by .loc; may be empty
	message string
}

// place returns the position of a fault as text.
func (f *fault) place() string {
	s := fmt.Sprintf("block %s, thread %s", dim(f.block), dim(f.thread))
	if f.line > 0 {
		s += fmt.Sprintf(", PTX line %d", f.line)
	}
	if f.source != "" {
		s += " (" + f.source + ")"
	}
	return s
}

// launch is a checked kernel launch.
type launch struct {
	function    *function
	grid, block [3]uint32
	shared      uint32
	stack       uint64 // bytes a thread
	params      []byte // the node's own copy
	bound       map[uint64]*Texture
	cooperative bool
	key         uint64 // of its shape
}

// launch queues a kernel.
func (c *Context) launch(s *Stream, w *accel.Launch, done accel.Done) cuda.Result {
	f, r := c.checkLaunch(w)
	if r != cuda.Success {
		return r
	}
	d := c.dev
	d.mu.Lock()
	n := d.newKernel(c, f, w)
	n.spent, n.done = w.Spent, done
	s.append(n)
	if !d.brief(&n.launch) || !d.executors[engine.Compute].inline(n) {
		d.submit(n)
	}
	return cuda.Success
}

// Prepare compiles the kernel of a launch.
func (c *Context) Prepare(w *accel.Launch) {
	if m, ok := w.Module.(*Module); ok && w.Function >= 0 && w.Function < len(m.functions) {
		_ = m.functions[w.Function].code.prepare() // the launch returns the error
	}
}

// Prepared implements accel.Preparer.
func (c *Context) Prepared(w *accel.Launch) bool {
	m, ok := w.Module.(*Module)
	return !ok || w.Function < 0 || w.Function >= len(m.functions) || m.functions[w.Function].code.prepared()
}

// checkLaunch returns the function of a valid launch, and allocates the context's memory that its kernel needs.
func (c *Context) checkLaunch(w *accel.Launch) (*function, cuda.Result) {
	m, ok := w.Module.(*Module)
	if !ok || m.ctx != c || m.unloaded || w.Function < 0 || w.Function >= len(m.functions) {
		return nil, cuda.ErrorInvalidHandle
	}
	f := &m.functions[w.Function]
	if f.refusal != nil {
		c.dev.log.Warn("kernel refused", "kernel", f.layout.Name, "why", f.refusal.Error())
		return nil, cuda.Result(f.refusal.Result)
	}
	if w.Cluster != [3]uint32{} {
		return nil, cuda.ErrorInvalidClusterSize
	}
	if r := f.check(w); r != cuda.Success {
		return nil, r
	}
	if err := f.code.prepare(); err != nil {
		return nil, c.refuse(f, err)
	}
	if b := w.Block; int(b[0]*b[1]*b[2]) > f.code.mostThreads() {
		return nil, cuda.ErrorLaunchOutOfResources
	}
	if f.heap {
		if r := c.makeHeap(); r != cuda.Success {
			return nil, r
		}
	}
	if f.tells {
		c.makeText()
	}
	return f, cuda.Success
}

// refuse returns the result of a launch of a kernel that can't be compiled. The reason goes to the log and, once, to the
// program's stderr.
func (c *Context) refuse(f *function, err error) cuda.Result {
	c.dev.log.Warn("kernel refused", "kernel", f.layout.Name, "why", err.Error())
	if !f.explained {
		f.explained = true
		c.makeText()
		fmt.Fprintf(&c.text.stderr, "pegasus: kernel %s can't be launched: %v\n", f.layout.Name, err)
	}
	_, r := failure(err, cuda.ErrorInvalidPTX)
	return r
}

// newKernel returns a node for a launch that was checked. d.mu is held.
func (d *Device) newKernel(c *Context, f *function, w *accel.Launch) *node {
	n := d.newNode(c, kernelNode)
	n.class, n.engine = accel.Compute, engine.Compute
	n.becomeKernel(f, w)
	return n
}

// becomeKernel makes a node that of a launch.
func (n *node) becomeKernel(f *function, w *accel.Launch) {
	n.kind = kernelNode
	l := &n.launch
	l.function, l.grid, l.block, l.shared = f, w.Grid, w.Block, w.SharedBytes
	l.bound, l.cooperative = w.Module.(*Module).bound, w.Cooperative
	l.params = append(l.params[:0], w.Params[:f.layout.ParamBytes]...)
	l.stack = n.ctx.limits[limitStack]
	l.key = l.shape().key()
}

// briefNs is the predicted time, in ns, up to which the submitter runs a kernel itself if the engine is idle: waking
// the executor, and other cores for a part of the blocks, takes longer.
const briefNs = 25_000

// brief reports whether a launch is expected to take less than briefNs, and ends without other work.
func (d *Device) brief(l *launch) bool {
	ns := d.history.Find(l.key)
	return ns > 0 && ns <= briefNs && l.function.code.independent()
}

// check refuses a launch that the hardware would refuse.
func (f *function) check(w *accel.Launch) cuda.Result {
	g, b := w.Grid, w.Block
	if g[0] == 0 || g[1] == 0 || g[2] == 0 || g[0] > maxGridX || g[1] > maxGridYZ || g[2] > maxGridYZ ||
		b[0] == 0 || b[1] == 0 || b[2] == 0 || b[0] > maxBlockX || b[1] > maxBlockX || b[2] > maxBlockZ {
		return cuda.ErrorInvalidValue
	}
	switch threads := b[0] * b[1] * b[2]; {
	case threads > maxBlockThreads || threads > uint32(f.declared):
		return cuda.ErrorInvalidValue
	case threads > uint32(f.layout.MaxThreads):
		return cuda.ErrorLaunchOutOfResources
	}
	if q := f.required; q[0] != 0 && q != b {
		return cuda.ErrorInvalidValue
	}
	if uint64(f.layout.StaticShared)+uint64(w.SharedBytes) > maxSharedOptin {
		return cuda.ErrorInvalidValue
	}
	if uint64(len(w.Params)) < uint64(f.layout.ParamBytes) {
		return cuda.ErrorInvalidValue
	}
	return cuda.Success
}

// kernel runs a node's kernel, which has had its cores since the given time.
func (e *executor) kernel(m *member, n *node, since int64) cuda.Result {
	d, l := e.dev, &n.launch
	d.watchdog.begin(&m.watched, since)
	m.paused = 0
	p := d.profile.of(l.function)
	k := &m.kernelRun // field by field: a literal would be copied while it is being written
	k.Grid, k.Block, k.SharedBytes, k.Cooperative = l.grid, l.block, l.shared, l.cooperative
	k.Stack, k.Heap, k.Params, k.Memory, k.Texture = l.stack, n.ctx.heap.Load(), l.params, d.space, l.textures(n.ctx)
	k.Stdout, k.Stderr, k.Profile, k.Random = &n.ctx.text.stdout, &n.ctx.text.stderr, p.gather(), d.checks.random()
	k.Cores, k.MostCores, k.Growth = d.config.Cores, 0, nil
	switch {
	case n.inline:
		k.Cores = 1
	case n.joined:
		k.Cores, k.MostCores, k.Growth = m.cores, d.config.Cores, &m.growth
	}
	f := l.function.code.run(k)
	m.ran = d.clock()
	took := m.ran - since - m.paused
	d.profile.launched(p, took)
	m.watched.end()
	switch {
	case !m.timely.Load():
		where := f
		if where == nil {
			where = &fault{}
		}
		f = &fault{result: cuda.ErrorLaunchTimeout, block: where.block, thread: where.thread, line: where.line, source: where.source, message: fmt.Sprintf("it computed for longer than the kernel timeout: for %v, while it held the engine for %v",
			time.Duration(m.watched.meter.Computed()).Round(time.Millisecond), time.Duration(took).Round(time.Millisecond))}
	case n.ctx.destroyedNow():
		return n.ctx.Err()
	case d.aborted.Load():
		n.ctx.Fail(cuda.ErrorContextIsDestroyed)
		return n.ctx.Err()
	case f == nil:
		d.history.Learn(l.key, took)
		return n.ctx.Err()
	case m.cancel.Load() && n.ctx.Err() != cuda.Success: // a kernel of the context beside it failed, or it could not continue after its turn
		return n.ctx.Err()
	}
	d.tellFault(l.function.layout.Name, f)
	n.ctx.Fail(f.result)
	if f.result == cuda.ErrorLaunchTimeout {
		d.timedOut()
	}
	d.log.Warn("kernel ended", "kernel", l.function.layout.Name, "result", f.result.Name(), "why", f.message,
		"block", dim(f.block), "thread", dim(f.thread), "address", hex(f.address), "line", f.line, "source", f.source)
	return n.ctx.Err()
}

// tellFault reports a kernel's fault to the configuration's OnFault: the position comes first, since the text may be
// truncated.
func (d *Device) tellFault(kernel string, f *fault) {
	if d.config.OnFault == nil {
		return
	}
	const longestName, longestText = 60, 400
	if len(kernel) > longestName {
		kernel = kernel[:longestName] + "…"
	}
	text := fmt.Sprintf("kernel %s: %s at %s: %s", kernel, f.result.Name(), f.place(), f.message)
	if f.address != 0 {
		text += fmt.Sprintf(", address %s", hex(f.address))
	}
	if f.result == cuda.ErrorIllegalAddress {
		if where := d.space.Describe(f.address); where != "" {
			text += ", " + where
		}
	}
	if len(text) > longestText { // the source file's name and the assertion's message can have any length
		text = strings.ToValidUTF8(text[:longestText], "") + "…"
	}
	d.config.OnFault(f.result, text)
}

func (c *Context) destroyedNow() bool { return c.Err() == cuda.ErrorContextIsDestroyed }

func dim(d [3]uint32) string { return fmt.Sprintf("%d,%d,%d", d[0], d[1], d[2]) }
func hex(a uint64) string    { return "0x" + strconv.FormatUint(a, 16) }
