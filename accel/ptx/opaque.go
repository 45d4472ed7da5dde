package ptx

// Opaque is the kind of object that a variable without a value of its own represents.
type Opaque uint8

// The opaque types, and Plain, the absence of one.
const (
	Plain Opaque = iota
	TexRef
	SamplerRef
	SurfRef
)

func (o Opaque) String() string { return [...]string{"plain", ".texref", ".samplerref", ".surfref"}[o] }

var opaqueByName = map[string]Opaque{".texref": TexRef, ".samplerref": SamplerRef, ".surfref": SurfRef}

// beOpaque makes v a variable of an opaque type. It occupies the size of an address, so that it has one.
func (v *Var) beOpaque(o Opaque) { v.Opaque, v.Type, v.Size, v.Align = o, B64, 8, 8 }

// Sampler has the sampling parameters of a .samplerref. Modes are numbered as in the driver API.
type Sampler struct {
	Linear       bool
	Address      [3]uint32 // wrap, clamp, mirror, border
	Unnormalized bool
}

// The permitted values of the fields of a .samplerref.
var samplerFields = map[string]func(s *Sampler, value string) bool{
	"addr_mode_0": func(s *Sampler, value string) bool { return addressMode(&s.Address[0], value) },
	"addr_mode_1": func(s *Sampler, value string) bool { return addressMode(&s.Address[1], value) },
	"addr_mode_2": func(s *Sampler, value string) bool { return addressMode(&s.Address[2], value) },
	"filter_mode": func(s *Sampler, value string) bool {
		s.Linear = value == "linear"
		return s.Linear || value == "nearest"
	},
	"force_unnormalized_coords": func(s *Sampler, value string) bool {
		s.Unnormalized = value == "1"
		return s.Unnormalized || value == "0"
	},
}

func addressMode(to *uint32, value string) bool {
	mode, ok := map[string]uint32{"wrap": 0, "clamp_ogl": 1, "clamp_to_edge": 1, "mirror": 2, "clamp_to_border": 3}[value]
	*to = mode
	return ok
}

// opaqueValues parses "= { field = value, … }", if it is there: only samplers may have it, as the program sets those of
// textures and surfaces.
func (p *declarationParser) opaqueValues(v *Var) error {
	if p.tok.is("[") {
		return p.fail("arrays of %s are not supported", v.Opaque)
	}
	if !p.accept("=") {
		return nil
	}
	if v.Opaque != SamplerRef {
		return p.fail("initial values of %s variables are not supported", v.Opaque)
	}
	if err := p.expect("{"); err != nil {
		return err
	}
	for !p.accept("}") {
		if err := p.samplerField(&v.Sampler); err != nil {
			return err
		}
		if !p.accept(",") && !p.tok.is("}") {
			return p.fail("%q within an initialiser", p.tok.text)
		}
	}
	return nil
}

func (p *declarationParser) samplerField(s *Sampler) error {
	name, err := p.name()
	if err != nil {
		return err
	}
	if err := p.expect("="); err != nil {
		return err
	}
	if set := samplerFields[name]; set == nil || !set(s, p.tok.text) {
		return p.fail("a sampler can't have %s = %s", name, p.tok.text)
	}
	p.advance()
	return nil
}

// opaque reports whether an operand names a texture, sampler or surface: a variable of that type, or a handle.
func (c checker) opaque(o *Operand, what Opaque) bool {
	if o.Var != nil {
		return o.Var.Opaque == what && o.Imm == 0
	}
	return o.Reg != None && o.Pair == None && o.Imm == 0 && c.fn.Regs[o.Reg].Size() == 8
}

// handleOf returns the kind of object that the instructions of an opcode work on.
func handleOf(op Op) Opaque {
	switch op {
	case opSuld, opSust, opSured, opSuq:
		return SurfRef
	}
	return TexRef
}

var opSuld, opSust, opSured, opSuq = OpOf("suld"), OpOf("sust"), OpOf("sured"), OpOf("suq")

// OfSampler reports whether a txq reads a property of a sampler, and so may name one.
func (s *Mods) OfSampler() bool {
	for m := QUnnormalized; m <= QAddress2; m++ {
		if s.Has(m) {
			return true
		}
	}
	return false
}

// Geometry describes the coordinates of a texture or surface.
type Geometry struct {
	Dims    int  // within a layer; directions of cubes have three
	Layered bool // the layer comes first
	Cube    bool
}

// Geometry returns that of the textures or surfaces that the instruction works on.
func (s *Mods) Geometry() Geometry {
	switch s.First(D1, D2, D3, A1D, A2D, Cube, ACube) {
	case D2:
		return Geometry{Dims: 2}
	case D3:
		return Geometry{Dims: 3}
	case A1D:
		return Geometry{Dims: 1, Layered: true}
	case A2D:
		return Geometry{Dims: 2, Layered: true}
	case Cube:
		return Geometry{Dims: 3, Cube: true}
	case ACube:
		return Geometry{Dims: 3, Cube: true, Layered: true}
	}
	return Geometry{Dims: 1}
}

// Coordinates returns the number of operands that give a position in a texture.
func (s Geometry) Coordinates() int {
	if s.Layered {
		return s.Dims + 1
	}
	return s.Dims
}

// texture accepts "[texture, {coordinates}]". There may be more coordinates than needed, as the text pads them to
// two or four.
func (c checker) texture(in *Inst, o *Operand) error {
	if o.Kind != Texture || !c.opaque(o, handleOf(in.Op)) {
		return errTexture
	}
	need, coordinates := in.Mods.Geometry().Coordinates(), o.Elems
	if s := len(o.Elems) - 1; o.Elems[s].Kind == Address {
		if handleOf(in.Op) == SurfRef {
			return errTexture
		}
		coordinates = o.Elems[:s]
	}
	if len(coordinates) < need || len(coordinates) > 4 {
		return errTexture
	}
	for i := range need {
		if err := c.read(&coordinates[i], 4); err != nil {
			return err
		}
	}
	return nil
}

// gradient accepts a derivative: a vector, or for one dimension a single value.
func (c checker) gradient(o *Operand) error {
	if o.Kind != Vector {
		return c.read(o, 4)
	}
	for i := range o.Elems {
		if o.Elems[i].Kind == Sink {
			continue
		}
		if err := c.read(&o.Elems[i], 4); err != nil {
			return err
		}
	}
	return nil
}
