package session

import (
	"pegasus/accel"
	"pegasus/backend/worker/handles"
	"pegasus/cuda"
)

// array is a CUDA array of the guest, in its context.
type array struct {
	g *guestContext
	a accel.Array
}

// texture is a texture or surface of the guest, in its context.
type texture struct {
	g *guestContext
	t accel.Texture
}

// textures owns the arrays, textures and surfaces of the guest process, by their ids, and handles the calls about them.
// The poller owns it.
type textures struct {
	base
	modules *modules
	arrays  handles.Table[*array]
	table   handles.Table[*texture]
}

func (h *textures) dropContext(g *guestContext) {
	h.arrays.DeleteFunc(func(a *array) bool { return a.g == g })
	h.table.DeleteFunc(func(t *texture) bool { return t.g == g })
}

func (h *textures) ArrayCreate(c cuda.Call, a cuda.ArrayCreateArgs) cuda.Result {
	g, r := h.contexts.forWork(c)
	if r != cuda.Success {
		return r
	}
	if r := h.arrays.Available(a.Array); r != cuda.Success {
		return r
	}
	h.gate.Rest() // it may wait for frees, behind kernels
	arr, r := g.ctx.NewArray(accel.ArrayDesc{
		Width: a.Width, Height: a.Height, Depth: a.Depth, Format: a.Format, Channels: a.Channels, Flags: a.Flags,
	})
	if r == cuda.Success {
		h.arrays.Put(a.Array, &array{g, arr})
	}
	return r
}

func (h *textures) ArrayDestroy(_ cuda.Call, a cuda.ArrayDestroyArgs) cuda.Result {
	arr, r := h.arrays.Take(a.Array)
	if r == cuda.Success {
		arr.a.Destroy()
	}
	return r
}

// Resource types of a texture (CUresourcetype).
const (
	resourceArray  = 0
	resourceLinear = 2
	resourcePitch  = 3
)

func (h *textures) TextureCreate(c cuda.Call, a cuda.TextureCreateArgs) cuda.Result {
	g, r := h.contexts.forWork(c)
	if r != cuda.Success {
		return r
	}
	if r := h.table.Available(a.Texture); r != cuda.Success {
		return r
	}
	d := accel.TextureDesc{
		Address: a.Address, Width: a.Width, Height: a.Height, Pitch: a.Pitch, Format: a.Format, Channels: a.Channels,
		AddressMode: a.AddressMode, FilterMode: a.FilterMode, Flags: a.Flags, BorderColor: a.BorderColor,
	}
	switch a.Resource {
	case resourceArray:
		if d.Array, r = h.arrayOf(g, a.Address); r != cuda.Success {
			return h.refuseTexture(a.Texture, r)
		}
		d.Address = 0
	case resourceLinear:
		d.Height, d.Pitch = 0, 0
	case resourcePitch:
	default:
		return h.refuseTexture(a.Texture, cuda.ErrorInvalidValue)
	}
	return h.newTexture(g, a.Texture, d)
}

func (h *textures) newTexture(g *guestContext, id uint64, d accel.TextureDesc) cuda.Result {
	t, r := g.ctx.NewTexture(id, d)
	if r != cuda.Success {
		return h.refuseTexture(id, r)
	}
	h.table.Put(id, &texture{g, t})
	return cuda.Success
}

// refuseTexture records the error of a texture or surface that could not be made. The request for its handle returns
// that error.
func (h *textures) refuseTexture(id uint64, r cuda.Result) cuda.Result {
	r = h.table.Fail(id, r)
	if h.can.Quirks&cuda.GivesHandles != 0 {
		return cuda.Success
	}
	return r
}

// TextureHandle returns the device's handle of a texture or surface, or the error of its creation.
func (h *textures) TextureHandle(_ cuda.Call, a cuda.TextureHandleArgs) (out cuda.TextureHandleResult, r cuda.Result) {
	t, r := h.table.Get(a.Texture)
	if r != cuda.Success {
		h.table.Take(a.Texture)
		return out, r
	}
	if h.can.Quirks&cuda.GivesHandles == 0 {
		return out, cuda.ErrorNotSupported
	}
	return cuda.TextureHandleResult{Handle: t.t.Handle()}, cuda.Success
}

// arrayOf returns an array of a context.
func (h *textures) arrayOf(g *guestContext, id uint64) (accel.Array, cuda.Result) {
	arr, r := h.arrays.Get(id)
	if r != cuda.Success {
		return nil, r
	}
	if arr.g != g {
		return nil, cuda.ErrorInvalidHandle
	}
	return arr.a, cuda.Success
}

// SurfaceCreate makes a surface. Kernels find surfaces as they find textures, so both share a table.
func (h *textures) SurfaceCreate(c cuda.Call, a cuda.SurfaceCreateArgs) cuda.Result {
	g, r := h.contexts.forWork(c)
	if r != cuda.Success {
		return r
	}
	if r := h.table.Available(a.Surface); r != cuda.Success {
		return r
	}
	arr, r := h.arrayOf(g, a.Array)
	if r != cuda.Success {
		return h.refuseTexture(a.Surface, r)
	}
	return h.newTexture(g, a.Surface, accel.TextureDesc{Surface: true, Array: arr})
}

func (h *textures) ReferenceBind(c cuda.Call, a cuda.ReferenceBindArgs) cuda.Result {
	g, r := h.contexts.of(c)
	if r != cuda.Success {
		return r
	}
	m, r := h.modules.table.Get(a.Module)
	if r != cuda.Success {
		return r
	}
	var t accel.Texture
	if a.Texture != 0 {
		of, r := h.table.Get(a.Texture)
		if r != cuda.Success {
			return r
		}
		if of.g != g {
			return cuda.ErrorInvalidHandle
		}
		t = of.t
	}
	if m.g != g {
		return cuda.ErrorInvalidHandle
	}
	return m.m.Bind(a.Reference, t)
}

func (h *textures) TextureDestroy(_ cuda.Call, a cuda.TextureDestroyArgs) cuda.Result {
	t, r := h.table.Take(a.Texture)
	if r == cuda.Success {
		t.t.Destroy()
	}
	return r
}
