package worker

import (
	"pegasus/accel"
	"pegasus/backend/gate"
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

// MemAlloc leaves quotas to the device, which requests them (Place.Quota), since only the device can determine when
// memory is free again.
func (s *session) MemAlloc(c cuda.Call, a cuda.MemAllocArgs) (out cuda.MemAllocResult, r cuda.Result) {
	g, r := s.roomyContext(c)
	if r != cuda.Success {
		return out, r
	}
	if a.Size == 0 {
		return out, cuda.ErrorInvalidValue
	}
	if a.Size > s.total || len(s.allocs) >= maxObjects {
		return out, cuda.ErrorOutOfMemory
	}
	if out.Address, r = g.ctx.Alloc(a.Size); r != cuda.Success {
		return out, g.report(r)
	}
	s.allocs[out.Address] = g
	return out, cuda.Success
}

func (s *session) MemFree(_ cuda.Call, a cuda.MemFreeArgs) cuda.Result {
	g := s.allocs[a.Address]
	if g == nil {
		return cuda.ErrorInvalidValue
	}
	delete(s.allocs, a.Address)
	return g.report(g.ctx.Free(a.Address, func() {}))
}

func (s *session) MemInfo(c cuda.Call) (out cuda.MemInfoResult, r cuda.Result) {
	if _, r := s.context(c); r != cuda.Success {
		return out, r
	}
	used, quota := s.gate.Memory(gate.DeviceMemory)
	out.Total = min(quota, s.total)
	out.Free = out.Total - min(used, out.Total)
	if d := s.can.Coordination; d != nil {
		out.Free = min(out.Free, d.MemoryFree())
	}
	return out, cuda.Success
}

func (s *session) ArrayCreate(c cuda.Call, a cuda.ArrayCreateArgs) cuda.Result {
	g, r := s.roomyContext(c)
	if r != cuda.Success {
		return r
	}
	if r := s.arrays.free(a.Array); r != cuda.Success {
		return r
	}
	arr, r := g.ctx.NewArray(accel.ArrayDesc{
		Width: a.Width, Height: a.Height, Depth: a.Depth, Format: a.Format, Channels: a.Channels, Flags: a.Flags,
	})
	if r == cuda.Success {
		s.arrays.put(a.Array, &array{g, arr})
	}
	return r
}

func (s *session) ArrayDestroy(_ cuda.Call, a cuda.ArrayDestroyArgs) cuda.Result {
	arr, r := s.arrays.take(a.Array)
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

func (s *session) TextureCreate(c cuda.Call, a cuda.TextureCreateArgs) cuda.Result {
	g, r := s.roomyContext(c)
	if r != cuda.Success {
		return r
	}
	if r := s.textures.free(a.Texture); r != cuda.Success {
		return r
	}
	d := accel.TextureDesc{
		Address: a.Address, Width: a.Width, Height: a.Height, Pitch: a.Pitch, Format: a.Format, Channels: a.Channels,
		AddressMode: a.AddressMode, FilterMode: a.FilterMode, Flags: a.Flags, BorderColor: a.BorderColor,
	}
	switch a.Resource {
	case resourceArray:
		if d.Array, r = s.arrayOf(g, a.Address); r != cuda.Success {
			return s.refuseTexture(a.Texture, r)
		}
		d.Address = 0
	case resourceLinear:
		d.Height, d.Pitch = 0, 0
	case resourcePitch:
	default:
		return s.refuseTexture(a.Texture, cuda.ErrorInvalidValue)
	}
	return s.newTexture(g, a.Texture, d)
}

func (s *session) newTexture(g *guestContext, id uint64, d accel.TextureDesc) cuda.Result {
	t, r := g.ctx.NewTexture(id, d)
	if r != cuda.Success {
		return s.refuseTexture(id, r)
	}
	s.textures.put(id, &texture{g, t})
	return cuda.Success
}

// refuseTexture records the error of a texture or surface that could not be made. The request for its handle returns
// that error.
func (s *session) refuseTexture(id uint64, r cuda.Result) cuda.Result {
	r = s.textures.poison(id, r)
	if s.can.Habits&cuda.GivesHandles != 0 {
		return cuda.Success
	}
	return r
}

// TextureHandle returns the device's handle of a texture or surface, or the error of its creation.
func (s *session) TextureHandle(_ cuda.Call, a cuda.TextureHandleArgs) (out cuda.TextureHandleResult, r cuda.Result) {
	t, r := s.textures.get(a.Texture)
	if r != cuda.Success {
		s.textures.take(a.Texture)
		return out, r
	}
	if s.can.Habits&cuda.GivesHandles == 0 {
		return out, cuda.ErrorNotSupported
	}
	return cuda.TextureHandleResult{Handle: t.t.Handle()}, cuda.Success
}

// arrayOf returns an array of a context.
func (s *session) arrayOf(g *guestContext, id uint64) (accel.Array, cuda.Result) {
	arr, r := s.arrays.get(id)
	if r != cuda.Success {
		return nil, r
	}
	if arr.g != g {
		return nil, cuda.ErrorInvalidHandle
	}
	return arr.a, cuda.Success
}

// SurfaceCreate makes a surface. Kernels find surfaces as they find textures, so both share a table.
func (s *session) SurfaceCreate(c cuda.Call, a cuda.SurfaceCreateArgs) cuda.Result {
	g, r := s.roomyContext(c)
	if r != cuda.Success {
		return r
	}
	if r := s.textures.free(a.Surface); r != cuda.Success {
		return r
	}
	arr, r := s.arrayOf(g, a.Array)
	if r != cuda.Success {
		return s.refuseTexture(a.Surface, r)
	}
	return s.newTexture(g, a.Surface, accel.TextureDesc{Surface: true, Array: arr})
}

func (s *session) ReferenceBind(c cuda.Call, a cuda.ReferenceBindArgs) cuda.Result {
	g, r := s.context(c)
	if r != cuda.Success {
		return r
	}
	m, r := s.modules.get(a.Module)
	if r != cuda.Success {
		return r
	}
	var t accel.Texture
	if a.Texture != 0 {
		of, r := s.textures.get(a.Texture)
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

func (s *session) TextureDestroy(_ cuda.Call, a cuda.TextureDestroyArgs) cuda.Result {
	t, r := s.textures.take(a.Texture)
	if r == cuda.Success {
		t.t.Destroy()
	}
	return r
}
