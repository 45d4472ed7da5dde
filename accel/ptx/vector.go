package ptx

import "strings"

// vectorTypes are the types of vectors, by how they are written.
var vectorTypes = map[string]int64{".v2": 2, ".v4": 4}

// setVector declares a register with .v2 or .v4: as many registers in a row.
func (s *scope) setVector(name string, r regRange) {
	if s.vectors == nil {
		s.vectors = map[string]regRange{}
	}
	s.vectors[name] = r
}

func (s *scope) vector(name string) (regRange, bool) {
	for ; s != nil; s = s.outer {
		if r, ok := s.vectors[name]; ok {
			return r, true
		}
	}
	return regRange{}, false
}

// whole reads the name of a vector: of a register, or %tid and the like.
func (b *builder) whole(name string) (o Operand, ok bool) {
	o.Kind, o.Reg, o.Pair = Vector, None, None
	if r, ok := b.scope.vector(name); ok {
		var elems [4]Operand
		for i := range r.count {
			elems[i] = Operand{Kind: Register, Reg: r.first + i, Pair: None}
		}
		o.Elems = b.keep(elems[:r.count]...)
		return o, true
	}
	if _, ok := specials[name+".x"]; !ok {
		return o, false
	}
	var elems [4]Operand
	for i, part := range [...]string{".x", ".y", ".z", ".w"} {
		elems[i] = Operand{Kind: Special, Reg: None, Pair: None, Imm: uint64(Zero)}
		if s, ok := specials[name+part]; ok {
			elems[i].Imm = uint64(s)
		}
	}
	o.Elems = b.keep(elems[:]...)
	return o, true
}

// part parses a name that is not declared as a whole: a vector, an element of one (%v.x), or a register with a selector
// (%r.b0).
func (b *builder) part(name string) (o Operand, ok bool) {
	if o, ok := b.whole(name); ok {
		return o, true
	}
	dot := strings.LastIndexByte(name, '.')
	if dot <= 0 || dot+1 == len(name) {
		return o, false
	}
	base, part := name[:dot], name[dot+1:]
	v, ok := b.whole(base)
	if !ok {
		return b.selected(base, part)
	}
	i := max(strings.Index("xyzw", part), strings.Index("rgba", part))
	if len(part) != 1 || i < 0 || i >= len(v.Elems) {
		return o, false
	}
	return v.Elems[i], true
}
