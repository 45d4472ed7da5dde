//go:build cgo

package nvidia

import (
	"bytes"
	"fmt"
	"slices"

	"pegasus/accel"
	"pegasus/accel/linked"
	"pegasus/accel/nvidia/driver"
	"pegasus/accel/nvidia/image"
	"pegasus/cuda"
)

// Module is a module of the driver, with its layout for guests.
type Module struct {
	ctx       *Context
	h         driver.Module
	layout    cuda.ModuleLayout
	functions []function
	variables []*span
	held      uint64 // lower bound of the bytes of the device that it occupies
	unloaded  bool
	prints    bool // its kernels may
}

// function is one kernel of a module.
type function struct {
	h       driver.Function
	layout  *cuda.FunctionLayout
	offsets []uint32 // of its parameters
	shared  uint32   // permitted dynamic shared memory, in bytes
	large   bool     // clusters may exceed the portable size
}

// maxObjects bounds the number of linked objects.
const maxObjects = 1 << 12

// LoadModule loads PTX text, a cubin, or the objects of an image that the guest's linker made.
func (c *Context) LoadModule(img []byte) (accel.Module, string, cuda.Result) {
	if r := c.Err(); r != cuda.Success {
		return nil, "", r
	}
	code, has, log, r := c.compile(img)
	if r != cuda.Success {
		return nil, log, c.failIfSticky(r)
	}
	m := &Module{ctx: c, prints: printsText(img)}
	if code == nil { // nothing was to be loaded
		m.unloaded = true
		return m, log, cuda.Success
	}
	if log, ok := m.hold(has.Memory); !ok {
		return nil, log, cuda.ErrorOutOfMemory
	}
	if m.h, log, r = driver.LoadModule(c.ctx, code); r != cuda.Success {
		m.release(m.held)
		return nil, log, c.failIfSticky(r)
	}
	taken, r := m.describe(code, has.Variables)
	if r != cuda.Success {
		m.unload()
		return nil, "the driver can't describe the module", c.failIfSticky(r)
	}
	if log, ok := m.hold(taken); !ok { // none of its work runs yet
		m.forgetVariables()
		m.unload()
		return nil, log, cuda.ErrorOutOfMemory
	}
	return m, log, cuda.Success
}

// hold accounts for the module's device memory, n bytes at least.
func (m *Module) hold(n uint64) (log string, ok bool) {
	if n <= m.held {
		return "", true
	}
	if n > m.ctx.dev.about.TotalMem || !m.ctx.extra.charge(m.ctx.dev, int64(n-m.held)) {
		return fmt.Sprintf("the module takes %d bytes of device memory: there is no room for it", n), false
	}
	m.held = n
	return "", true
}

func (m *Module) release(n uint64) {
	m.ctx.extra.charge(m.ctx.dev, -int64(n))
	m.held -= n
}

// unload has the driver unload the module, which must be unused. Memory that the driver doesn't free stays accounted
// until the context ends.
func (m *Module) unload() {
	if r := driver.UnloadModule(m.ctx.ctx, m.h); m.ctx.failIfSticky(r) == cuda.Success {
		m.release(m.held)
	}
}

// compile converts an image to code that the driver can load, and returns the facts about its variables; nil if no
// code is required.
func (c *Context) compile(img []byte) (code []byte, has image.Cubin, log string, r cuda.Result) {
	if linked.Is(img) {
		return c.link(img)
	}
	if bytes.HasPrefix(img, []byte(image.ELF)) {
		cubin, err := image.ReadCubin(img)
		if err != nil {
			return nil, has, err.Error(), cuda.ErrorInvalidImage
		}
		return img, *cubin, "", cuda.Success
	}
	text, _, _ := bytes.Cut(img, []byte{0})
	if !image.LooksLikeText(text) {
		return nil, has, "the image is neither PTX text nor a cubin", cuda.ErrorInvalidImage
	}
	has.Variables, has.Memory = image.Variables(text)
	code = append(slices.Clip(text), 0)
	if describes() {
		return code, has, "", cuda.Success
	}
	// Such a driver doesn't report parameters, but a cubin has them.
	code, log, r = driver.Link(c.ctx, []driver.Object{{Name: "image", Text: code}}, false)
	return code, has, log, r
}

// link links the objects of an image to a cubin.
func (c *Context) link(img []byte) (code []byte, has image.Cubin, log string, r cuda.Result) {
	all, purpose, ok := linked.Read(img, maxObjects)
	if !ok {
		return nil, has, "the linked image is damaged", cuda.ErrorInvalidImage
	}
	if len(all) == 0 || len(all) > maxObjects {
		return nil, has, fmt.Sprintf("%d objects cannot be linked, but 1 to %d", len(all), maxObjects), cuda.ErrorInvalidPTX
	}
	objects := make([]driver.Object, len(all))
	for i, o := range all {
		text, _, _ := bytes.Cut(o.Text, []byte{0})
		objects[i] = driver.Object{Name: o.Name, Text: append(slices.Clip(text), 0)}
		names, bytes := image.Variables(text)
		has.Variables, has.Memory = append(has.Variables, names...), has.Memory+min(bytes, c.dev.about.TotalMem)
	}
	code, log, r = driver.Link(c.ctx, objects, purpose == linked.ToCompile)
	if purpose != linked.ToLoad {
		code = nil
	}
	return code, has, log, r
}

// describes reports whether the driver can list the kernels of a module, and their parameters: from CUDA 12.4 on.
func describes() bool {
	return driver.Has("cuModuleEnumerateFunctions") && driver.Has("cuFuncGetParamInfo")
}

// describe builds the module's layout, and returns the bytes of memory of its variables.
func (m *Module) describe(code []byte, names []string) (taken uint64, r cuda.Result) {
	c := m.ctx
	var kernels []image.Kernel
	if describes() {
		kernels, r = m.ask()
	} else {
		kernels, r = m.read(code)
	}
	if r != cuda.Success {
		return 0, r
	}
	m.layout.Functions = make([]cuda.FunctionLayout, len(kernels))
	for i, k := range kernels {
		f := &m.functions[i]
		f.layout = &m.layout.Functions[i]
		attribute := func(a int) int32 { return driver.FunctionAttribute(c.ctx, f.h, a) }
		*f.layout = cuda.FunctionLayout{
			Name: k.Name, Params: k.Params, MaxThreads: attribute(functionMaxThreads), StaticShared: attribute(functionStaticShared),
			ConstBytes: attribute(functionConst), LocalBytes: attribute(functionLocal), Registers: attribute(functionRegisters),
			PTXVersion: attribute(functionPTXVersion), BinaryVersion: attribute(functionBinaryVersion), MaxDynamicShared: attribute(functionMaxDynamicShared),
		}
		for _, p := range k.Params {
			f.layout.ParamBytes = max(f.layout.ParamBytes, p.Offset+p.Size)
			f.offsets = append(f.offsets, p.Offset)
		}
		f.shared = uint32(max(f.layout.MaxDynamicShared, 0))
	}
	return m.findVariables(names), cuda.Success
}

// ask returns the module's kernels as the driver lists them.
func (m *Module) ask() ([]image.Kernel, cuda.Result) {
	c := m.ctx
	all, names, r := driver.Functions(c.ctx, m.h)
	if r != cuda.Success {
		return nil, r
	}
	kernels := make([]image.Kernel, len(all))
	for i, h := range all {
		m.functions = append(m.functions, function{h: h})
		kernels[i].Name = names[i]
		if kernels[i].Params, r = driver.Params(c.ctx, h); r != cuda.Success {
			return nil, r
		}
	}
	return kernels, cuda.Success
}

// read reads the module's kernels from the cubin.
func (m *Module) read(code []byte) ([]image.Kernel, cuda.Result) {
	cubin, err := image.ReadCubin(code)
	if err != nil {
		m.ctx.dev.log.Warn("read the kernels of a module", "err", err)
		return nil, cuda.ErrorInvalidImage
	}
	for _, k := range cubin.Kernels {
		h, r := driver.FunctionOf(m.ctx.ctx, m.h, k.Name)
		if r != cuda.Success {
			return nil, r
		}
		m.functions = append(m.functions, function{h: h})
	}
	return cubin.Kernels, cuda.Success
}

// findVariables finds the addresses of the variables. Names unknown to the driver are no variables, or the driver has
// removed the variables.
func (m *Module) findVariables(names []string) (taken uint64) {
	c := m.ctx
	seen := map[string]bool{}
	for _, name := range names {
		if seen[name] {
			continue
		}
		seen[name] = true
		at, n, r := driver.GlobalOf(c.ctx, m.h, name)
		if r != cuda.Success {
			continue
		}
		m.layout.Globals = append(m.layout.Globals, cuda.GlobalLayout{Name: name, Kind: cuda.GlobalMemory, Address: at, Size: n})
		s := &span{at: at, bytes: n, ctx: c, kind: variable}
		c.dev.mu.Lock()
		if c.dev.spans.add(s) {
			m.variables = append(m.variables, s)
			taken += (n + granule - 1) &^ (granule - 1)
		}
		c.dev.mu.Unlock()
	}
	return taken
}

// Layout returns the module's layout.
func (m *Module) Layout() *cuda.ModuleLayout { return &m.layout }

// Bind implements accel.Module: the driver's modules have no references that the guest could bind.
func (m *Module) Bind(uint64, accel.Texture) cuda.Result { return cuda.ErrorInvalidHandle }

// Unload releases the module once the work submitted before has ended.
func (m *Module) Unload() {
	c := m.ctx
	if m.unloaded || c.isGone() {
		return
	}
	m.unloaded = true
	m.forgetVariables()
	c.later(m.unload)
}

func (m *Module) forgetVariables() {
	d := m.ctx.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range m.variables {
		d.spans.drop(s)
	}
}
