package soft

import (
	"maps"

	"pegasus/accel"
	"pegasus/accel/ptx"
	"pegasus/accel/soft/lane"
	"pegasus/cuda"
)

const textureAlign = 512 // attribute 14

// Texture is a texture or surface object, which kernels of its context access by a handle.
type Texture struct {
	ctx    *Context
	handle uint64
	desc   accel.TextureDesc
	array  *Array
	size   uint64 // bytes of an element
}

// NewTexture binds handle to a texture. Whether its memory still exists is checked when a kernel starts to use it.
func (c *Context) NewTexture(handle uint64, d accel.TextureDesc) (accel.Texture, cuda.Result) {
	if r := c.Err(); r != cuda.Success {
		return nil, r
	}
	t := &Texture{ctx: c, handle: handle, desc: d}
	if d.Array != nil {
		a, ok := d.Array.(*Array)
		if !ok || a.ctx != c || a.freed {
			return nil, cuda.ErrorInvalidHandle
		}
		t.array = a
		t.desc.Format, t.desc.Channels = a.desc.Format, a.desc.Channels
		t.desc.Width, t.desc.Height, t.desc.Pitch = a.desc.Width, a.desc.Height, a.pitch
	}
	t.size = elementBytes(t.desc.Format, t.desc.Channels)
	if r := t.check(); r != cuda.Success {
		return nil, r
	}
	c.textureMu.Lock()
	defer c.textureMu.Unlock()
	if _, taken := c.textures[handle]; taken {
		return nil, cuda.ErrorInvalidHandle
	}
	c.textures[handle] = t
	return t, cuda.Success
}

// Handle returns the handle that the guest chose.
func (t *Texture) Handle() uint64 { return t.handle }

// check refuses invalid descriptions, so that sizes can be multiplied later without overflow.
func (t *Texture) check() cuda.Result {
	d := &t.desc
	if d.Surface && t.array == nil {
		return cuda.ErrorInvalidValue
	}
	if t.size == 0 || d.Width == 0 || d.FilterMode > 1 || d.AddressMode[0] > 3 || d.AddressMode[1] > 3 || d.AddressMode[2] > 3 {
		return cuda.ErrorInvalidValue
	}
	if d.Flags&(textureSRGB|textureSeamless) != 0 {
		return cuda.ErrorNotSupported // unsupported by the lane engine
	}
	if t.array != nil {
		return cuda.Success
	}
	if d.Width > 1<<27 || d.Height > maxArrayHeight || d.Address%textureAlign != 0 {
		return cuda.ErrorInvalidValue
	}
	if d.Height > 0 && (d.Pitch < d.Width*t.size || d.Pitch > 1<<32 || d.Pitch%32 != 0) {
		return cuda.ErrorInvalidValue
	}
	return cuda.Success
}

// bytes returns the texture's memory, nil if there is none at its address any more.
func (t *Texture) bytes() []byte {
	d := &t.desc
	if t.array != nil {
		if t.array.gone.Load() {
			return nil
		}
		return t.array.bytes()
	}
	n := d.Width * t.size
	if d.Height > 1 {
		n += (d.Height - 1) * d.Pitch
	}
	return t.ctx.dev.space.Slice(d.Address, n)
}

// Flags of a texture (CU_TRSF_*).
const (
	readAsInteger         = 0x1
	normalizedCoordinates = 0x2
	textureSRGB           = 0x10
	textureSeamless       = 0x40 // filter across the edges of a cube
)

// lane returns the texture in the form of the lane engine; it checks once more that all elements lie in the memory.
func (t *Texture) lane() *lane.Texture {
	d := &t.desc
	never := d.Format == formatU32 || d.Format == formatS32 || d.Format == formatFloat || d.Format == formatHalf // read as 0…1
	pitch := d.Pitch
	if d.Height == 0 {
		pitch = 0
	}
	l := &lane.Texture{
		Data: t.bytes(), Width: int(d.Width), Height: int(d.Height), PitchBytes: int(pitch),
		Format: lane.Format(d.Format), Channels: int(d.Channels),
		Linear:     d.FilterMode == 1,
		Normalized: d.Flags&normalizedCoordinates != 0,
		ReadFloat:  d.Flags&readAsInteger == 0 && !never,
		Address:    [3]lane.AddressMode{lane.AddressMode(d.AddressMode[0]), lane.AddressMode(d.AddressMode[1]), lane.AddressMode(d.AddressMode[2])},
		Border:     d.BorderColor,
		Surface:    d.Surface,
	}
	if a := t.array; a != nil {
		l.Depth, l.SliceBytes = int(a.desc.Depth), int(a.pitch*a.rows)
		l.Layered, l.Cube = a.desc.Flags&arrayLayered != 0, a.desc.Flags&arrayCube != 0
	} else if d.Height == 0 { // linear memory is neither filtered nor extended: reads beyond it return zeros
		l.Linear, l.Address, l.Border = false, [3]lane.AddressMode{lane.Border, lane.Border, lane.Border}, [4]float32{}
	}
	return l
}

// texture returns the texture of a handle, for a kernel. It is nil if there is none.
func (c *Context) texture(handle uint64) *lane.Texture {
	c.textureMu.RLock()
	t := c.textures[handle]
	c.textureMu.RUnlock()
	if t == nil {
		return nil
	}
	return t.lane()
}

// Bind binds a reference of the module to a texture or surface, or to none.
func (m *Module) Bind(reference uint64, to accel.Texture) cuda.Result {
	if r := m.ctx.Err(); r != cuda.Success {
		return r
	}
	t, ok := to.(*Texture)
	if what := m.references[reference]; what == ptx.Plain || to != nil && (!ok || t.ctx != m.ctx || t.desc.Surface != (what == ptx.SurfRef)) {
		return cuda.ErrorInvalidHandle
	}
	bound := maps.Clone(m.bound) // queued launches use the previous map
	if bound == nil {
		bound = map[uint64]*Texture{}
	}
	if bound[reference] = t; to == nil {
		delete(bound, reference)
	}
	m.bound = bound
	return cuda.Success
}

// textures returns a lookup for a launch: of the textures bound to its module's references, and of the context's.
func (l *launch) textures(c *Context) func(handle uint64) *lane.Texture {
	if len(l.bound) == 0 {
		return c.textureOf
	}
	return func(handle uint64) *lane.Texture {
		if t := l.bound[handle]; t != nil {
			return t.lane()
		}
		return c.texture(handle)
	}
}

// Destroy releases the texture once the work submitted before has ended.
func (t *Texture) Destroy() {
	c := t.ctx
	c.afterAll(func(cuda.Result) {
		c.textureMu.Lock()
		defer c.textureMu.Unlock()
		if c.textures[t.handle] == t {
			delete(c.textures, t.handle)
		}
	})
}
