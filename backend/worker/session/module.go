package session

import (
	"pegasus/accel"
	"pegasus/backend/worker/handles"
	"pegasus/cuda"
)

// module is a loaded module with its kernels' measured costs.
type module struct {
	g     *guestContext
	m     accel.Module
	bytes uint64       // of its image
	costs []kernelCost // by function
}

// modules owns the loaded modules of the guest process, by their ids, and handles the calls about them. The poller owns
// it.
type modules struct {
	base
	table      handles.Table[*module]
	imageBytes uint64 // of all modules
}

func (h *modules) dropContext(g *guestContext) {
	h.table.DeleteFunc(func(m *module) bool {
		if m.g == g {
			h.imageBytes -= m.bytes
		}
		return m.g == g
	})
}

func (h *modules) ModuleLoad(c cuda.Call, a cuda.ModuleLoadArgs) (out cuda.ModuleLoadResult, r cuda.Result) {
	out, r = h.loadModule(c, a)
	if r != cuda.Success {
		// The log explains the error, so its length is sent with it.
		h.answer(c, h.contexts.peek(c).report(r), out.Append(nil))
		return out, cuda.Deferred
	}
	return out, r
}

func (h *modules) loadModule(c cuda.Call, a cuda.ModuleLoadArgs) (out cuda.ModuleLoadResult, r cuda.Result) {
	g, r := h.contexts.forWork(c)
	if r != cuda.Success {
		return out, r
	}
	if a.Module>>32 != 0 {
		return out, cuda.ErrorInvalidHandle
	}
	if r := h.table.Available(a.Module); r != cuda.Success {
		return out, r
	}
	x, image, r := h.moduleBuffers(a.ImageOffset, a.ImageLength, a.LayoutOffset, a.LayoutCapacity, a.LogOffset, a.LogCapacity)
	if r != cuda.Success {
		return out, r
	}
	var m accel.Module
	var text string
	h.gate.Prepare(func() { m, text, r = g.ctx.LoadModule(image) })
	out.LogLength = uint64(copy(x.log, text))
	if r != cuda.Success {
		return out, r
	}
	layout := m.Layout()
	if out.LayoutLength, r = x.put(layout); r != cuda.Success {
		m.Unload()
		return out, r
	}
	h.imageBytes += a.ImageLength
	costs := make([]kernelCost, len(layout.Functions))
	for i := range costs {
		costs[i].name = layout.Functions[i].Name
		costs[i].identity = mix(identity(costs[i].name), a.ImageLength)
	}
	h.table.Put(a.Module, &module{g: g, m: m, bytes: a.ImageLength, costs: costs})
	return out, cuda.Success
}

// moduleBuffers is the guest's buffers for an image's layout and log.
type moduleBuffers struct{ layout, log []byte }

// moduleBuffers returns the parts of the arena, and a copy of the image, since the guest may write to it meanwhile.
func (h *modules) moduleBuffers(image, imageLength, layout, layoutCapacity, log, logCapacity uint64) (x moduleBuffers, copied []byte, r cuda.Result) {
	shared, ok := h.host.Arena(image, imageLength)
	layoutTo, ok2 := h.host.Arena(layout, layoutCapacity)
	logTo, ok3 := h.host.Arena(log, logCapacity)
	if !ok || !ok2 || !ok3 {
		return x, nil, cuda.ErrorInvalidValue
	}
	if imageLength > h.maxImageBytes()-h.imageBytes {
		return x, nil, cuda.ErrorOutOfMemory
	}
	return moduleBuffers{layoutTo, logTo}, append([]byte(nil), shared...), cuda.Success
}

// maxImageBytes returns the bound on the total bytes of all modules' images.
func (h *modules) maxImageBytes() uint64 {
	if h.can.Quirks&cuda.TakesMachineCode != 0 {
		return maxMachineCode
	}
	return maxImages
}

// put writes a layout completely or not at all, and returns its length.
func (x moduleBuffers) put(l *cuda.ModuleLayout) (length uint64, r cuda.Result) {
	blob := l.Append(nil)
	if len(blob) > len(x.layout) {
		return uint64(len(blob)), cuda.ErrorInvalidValue
	}
	return uint64(copy(x.layout, blob)), cuda.Success
}

// ModuleInspect serves libraries, which programs may inspect before they have a context.
func (h *modules) ModuleInspect(c cuda.Call, a cuda.ModuleInspectArgs) (out cuda.ModuleInspectResult, r cuda.Result) {
	out, r = h.inspectModule(a)
	if r != cuda.Success {
		h.answer(c, r, out.Append(nil)) // with the log, as for ModuleLoad
		return out, cuda.Deferred
	}
	return out, r
}

func (h *modules) inspectModule(a cuda.ModuleInspectArgs) (out cuda.ModuleInspectResult, r cuda.Result) {
	if a.Device != 0 {
		return out, cuda.ErrorInvalidDevice
	}
	x, image, r := h.moduleBuffers(a.ImageOffset, a.ImageLength, a.LayoutOffset, a.LayoutCapacity, a.LogOffset, a.LogCapacity)
	if r != cuda.Success {
		return out, r
	}
	var layout *cuda.ModuleLayout
	var text string
	h.gate.Prepare(func() { layout, text, r = h.device.Inspect(image) })
	out.LogLength = uint64(copy(x.log, text))
	if r == cuda.Success {
		out.LayoutLength, r = x.put(layout)
	}
	return out, r
}

func (h *modules) ModuleUnload(_ cuda.Call, a cuda.ModuleUnloadArgs) cuda.Result {
	m, r := h.table.Take(a.Module)
	if r == cuda.Success {
		h.imageBytes -= m.bytes
		m.m.Unload()
	}
	return r
}
