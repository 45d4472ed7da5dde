package soft

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"pegasus/accel"
	"pegasus/accel/linked"
	"pegasus/accel/ptx"
	"pegasus/accel/soft/lane"
	"pegasus/accel/soft/memory"
	"pegasus/cuda"
)

// LoadModule loads PTX text, or the objects of an image that the guest's linker made. Machine code for real devices is refused with
// cuda.ErrorNoBinaryForGPU, anything else with cuda.ErrorInvalidImage.
func (c *Context) LoadModule(image []byte) (accel.Module, string, cuda.Result) {
	if r := c.Err(); r != cuda.Success {
		return nil, "", r
	}
	objects, purpose, log, r := readImage(image)
	if r != cuda.Success {
		return nil, log, r
	}
	m := &Module{ctx: c}
	m.image = c.dev.profile.remember(image, objects)
	log, r = m.compile(objects, purpose)
	if r != cuda.Success {
		m.Unload()
		return nil, log, r
	}
	return m, log, cuda.Success
}

// Inspect returns the layout that LoadModule would return, without placing anything in memory.
func (d *Device) Inspect(image []byte) (*cuda.ModuleLayout, string, cuda.Result) {
	objects, purpose, log, r := readImage(image)
	if r != cuda.Success {
		return nil, log, r
	}
	if purpose != linked.ToLoad {
		return nil, "the linked image is not to be loaded", cuda.ErrorInvalidImage
	}
	parsed, err := ptx.Link(objects, d.config.RefusePTX)
	if err != nil {
		log, r = failure(err, cuda.ErrorInvalidPTX)
		return nil, log, r
	}
	l := &cuda.ModuleLayout{}
	for _, f := range parsed.Kernels {
		l.Functions = append(l.Functions, layoutFunction(f))
	}
	for _, v := range parsed.Globals {
		l.Globals = append(l.Globals, cuda.GlobalLayout{Name: v.Name, Kind: kinds[v.Opaque], Size: uint64(v.Size)})
	}
	return l, "", cuda.Success
}

// readImage returns the objects of PTX text in an image, which is hostile, and the purpose of the load.
func readImage(image []byte) (objects []ptx.Object, p linked.Purpose, log string, r cuda.Result) {
	text, _, _ := bytes.Cut(image, []byte{0})
	switch {
	case linked.Is(image):
		all, p, ok := linked.Read(image, ptx.MaxObjects)
		if !ok {
			return nil, 0, "the linked image is damaged", cuda.ErrorInvalidImage
		}
		for _, o := range all {
			objects = append(objects, ptx.Object(o))
		}
		return objects, p, "", cuda.Success
	case bytes.HasPrefix(image, []byte("\x7fELF")):
		return nil, 0, "the image has machine code for a GPU and no PTX, which the software accelerator needs", cuda.ErrorNoBinaryForGPU
	case !looksLikeText(text):
		return nil, 0, "the image is neither PTX text nor of a known format", cuda.ErrorInvalidImage
	}
	return []ptx.Object{{Text: text}}, linked.ToLoad, "", cuda.Success
}

// looksLikeText reports whether an image begins with printable characters, or with a comment, which has any.
func looksLikeText(image []byte) bool {
	if bytes.HasPrefix(image, []byte("//")) || bytes.HasPrefix(image, []byte("/*")) {
		return true
	}
	for _, b := range image[:min(len(image), 16)] {
		if b != '\t' && b != '\n' && b != '\r' && (b < ' ' || b > '~') {
			return false
		}
	}
	return len(image) > 0
}

// compile prepares the objects' kernels and places their variables, if that is the purpose.
func (m *Module) compile(objects []ptx.Object, p linked.Purpose) (log string, r cuda.Result) {
	if p == linked.ToCompile {
		return failure(ptx.Check(objects, m.ctx.dev.config.RefusePTX), cuda.ErrorInvalidPTX)
	}
	parsed, err := ptx.Link(objects, m.ctx.dev.config.RefusePTX)
	if err != nil || p == linked.ToLink {
		return failure(err, cuda.ErrorInvalidPTX)
	}
	placed, err := lane.Load(parsed, m.place)
	m.loosen()
	if err != nil {
		return failure(err, cuda.ErrorInvalidPTX)
	}
	m.layout.Functions = make([]cuda.FunctionLayout, len(parsed.Kernels))
	m.functions = make([]function, len(parsed.Kernels))
	m.references = map[uint64]ptx.Opaque{}
	for i, f := range parsed.Kernels {
		k, err := placed.Kernel(f.Name)
		if err != nil {
			return failure(err, cuda.ErrorInvalidPTX)
		}
		l, refusal := &m.layout.Functions[i], f.Refusal
		*l = layoutFunction(f)
		if refusal == nil && (placed.Compiled() || k.MayNotFit()) {
			if refusal = m.tryKernel(k, l); refusal != nil && m.ctx.dev.config.RefusePTX != ptx.AtLaunch {
				return refusal.Error(), cuda.Result(refusal.Result)
			}
		} else if refusal == nil {
			l.Refusal = cuda.TryFirst
		}
		if f.Heap && l.Refusal == 0 {
			l.Refusal = cuda.TryFirst // there may be no memory for the heap
		}
		m.functions[i] = function{number: functionNumber.Add(1), layout: l, required: f.ReqNTid, declared: maxThreads(f), heap: f.Heap, tells: f.Tells, code: laneCode{k}, image: m.image, refusal: refusal}
		if refusal != nil && len(log) < maxRefusals {
			log += fmt.Sprintf("kernel %s can't be launched: %v\n", f.Name, refusal)
		}
	}
	for _, v := range parsed.Globals {
		if addr, size, ok := placed.Global(v.Name); ok {
			m.layout.Globals = append(m.layout.Globals, cuda.GlobalLayout{Name: v.Name, Kind: kinds[v.Opaque], Address: addr, Size: size})
			if v.Opaque == ptx.TexRef || v.Opaque == ptx.SurfRef {
				m.references[addr] = v.Opaque
			}
		}
	}
	return log, cuda.Success
}

// tryKernel compiles a kernel and completes its layout. It returns the reason why the kernel can't be launched, or nil.
func (m *Module) tryKernel(k *lane.Kernel, l *cuda.FunctionLayout) *ptx.Error {
	err := k.Compile()
	if err == nil {
		l.MaxThreads = min(l.MaxThreads, int32(k.MostThreads()))
		return nil
	}
	refusal := &ptx.Error{Line: k.Func().Line, Msg: err.Error(), Result: ptx.ErrInvalidPTX}
	var p *ptx.Error
	if errors.As(err, &p) {
		*refusal = *p
	}
	if name := k.Func().Name; !strings.Contains(refusal.Msg, name) { // the line may be that of a function that it calls
		refusal.Msg = "kernel " + name + ": " + refusal.Msg
	}
	l.Refusal = refusal.Result
	return refusal
}

// maxRefusals bounds the part of a module's log on kernels that can't be launched.
const maxRefusals = 4 << 10

var kinds = [...]cuda.GlobalKind{ptx.TexRef: cuda.GlobalTexture, ptx.SamplerRef: cuda.GlobalSampler, ptx.SurfRef: cuda.GlobalSurface}

// failure turns an error of the compiler, if there is one, into a log and a result.
func failure(err error, otherwise cuda.Result) (log string, r cuda.Result) {
	var p *ptx.Error
	var full noMemory
	switch {
	case err == nil:
		return "", cuda.Success
	case errors.As(err, &full):
		return err.Error(), cuda.Result(full)
	case errors.As(err, &p):
		return err.Error(), cuda.Result(p.Result)
	}
	return err.Error(), otherwise
}

// noMemory is the error of a variable that could not be placed.
type noMemory cuda.Result

func (n noMemory) Error() string { return cuda.Result(n).Name() }

// place allocates a module variable.
func (m *Module) place(size, align uint64) (uint64, []byte, error) {
	if align > memory.Granule {
		return 0, nil, fmt.Errorf("alignment of %d bytes", align)
	}
	addr, r := m.ctx.take(size, variable)
	if r != cuda.Success {
		return 0, nil, noMemory(r)
	}
	m.memory = append(m.memory, addr)
	return addr, m.ctx.dev.space.Raw(addr, size), nil
}

// loosen allows the variables to be evicted: their initial values are in place.
func (m *Module) loosen() {
	if r := m.ctx.dev.residence; r != nil {
		for _, addr := range m.memory {
			r.Loosen(addr)
		}
	}
}

// laneCode is a kernel of the lane engine.
type laneCode struct{ kernel *lane.Kernel }

func (k laneCode) prepare() error { return k.kernel.Compile() }

func (k laneCode) prepared() bool { return k.kernel.Compiled() }

func (k laneCode) mostThreads() int { return k.kernel.MostThreads() }

func (k laneCode) independent() bool { return k.kernel.Independent() }

func (k laneCode) run(r *run) *fault {
	f := k.kernel.Run(&r.Launch)
	if f == nil {
		return nil
	}
	return &fault{result: cuda.Result(f.Result), block: f.Block, thread: f.Thread, address: f.Addr, line: f.Line, source: k.kernel.Source(f.Line), message: f.Msg}
}
