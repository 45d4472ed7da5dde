package ptx

import "math/bits"

// initialiserParser parses the initial values of variables.
type initialiserParser struct {
	*reader
	bytes int64 // of all initial values
	refs  int   // addresses in all of them
}

// initialiser reads "= value" or "= {…}".
func (p *initialiserParser) initialiser(v *Var, rows []int64) error {
	if v.Space != Global && v.Space != Const {
		return p.fail("variable %s can't be initialised", v.Name)
	}
	if p.bytes += v.Size; p.bytes > maxInitBytes {
		return p.fail("more than %d bytes of initial values", maxInitBytes)
	}
	unsized := v.Size == 0
	err := p.values(v, rows, 0)
	if err != nil {
		return err
	}
	if unsized {
		v.Size, v.Extern = int64(len(v.Init)), false
		p.bytes += v.Size
	}
	if int64(len(v.Init)) > v.Size {
		return p.fail("too many initial values for %s", v.Name)
	}
	v.Init = append(v.Init, make([]byte, v.Size-int64(len(v.Init)))...)
	return nil
}

// values reads a value, or values between braces: those of a row, of which the
// rest is zero.
func (p *initialiserParser) values(v *Var, rows []int64, depth int) error {
	if depth > maxDepth {
		return p.fail("initialiser is nested too deeply")
	}
	if !p.accept("{") {
		return p.value(v)
	}
	begin := int64(len(v.Init))
	for !p.accept("}") {
		if err := p.values(v, rows[min(1, len(rows)):], depth+1); err != nil {
			return err
		}
		if !p.accept(",") && !p.tok.is("}") {
			return p.fail("%q within an initialiser", p.tok.text)
		}
	}
	if depth == 0 || len(rows) == 0 {
		return nil
	}
	rest := begin + rows[0] - int64(len(v.Init))
	if rest < 0 || begin+rows[0] > p.room(v) {
		return p.fail("too many initial values for %s", v.Name)
	}
	v.Init = append(v.Init, make([]byte, rest)...)
	return nil
}

// room returns the maximum number of bytes of a variable's initial values.
func (p *initialiserParser) room(v *Var) int64 { return max(v.Size, maxInitBytes-p.bytes) }

// value reads one number or address and appends it to v.Init.
func (p *initialiserParser) value(v *Var) error {
	size := v.Type.Size()
	if int64(len(v.Init)+size) > p.room(v) {
		return p.fail("too many initial values for %s", v.Name)
	}
	var value uint64
	switch {
	case p.tok.kind == word && !p.tok.is("WARP_SZ"):
		r, err := p.reference()
		if err != nil {
			return err
		}
		if size < 4 || r.Func != nil && size < 8 {
			return p.fail("the address of a variable or a function can't be an initial value here")
		}
		if err := p.refer(v, r, size); err != nil {
			return err
		}
	case p.tok.kind == number && p.lex.after() == '(':
		r, err := p.byteOfAddress()
		if err != nil {
			return err
		}
		if size != 1 {
			return p.fail("a byte of an address is the initial value of a larger type")
		}
		if err := p.refer(v, r, size); err != nil {
			return err
		}
	default:
		o, err := p.expression()
		if err != nil {
			return err
		}
		value = o.Bits(v.Type)
	}
	for range size {
		v.Init = append(v.Init, byte(value))
		value >>= 8
	}
	return nil
}

// refer appends an address to the initial value.
func (p *initialiserParser) refer(v *Var, r Ref, size int) error {
	if p.refs++; p.refs > maxRefs {
		return p.fail("more than %d addresses in initial values", maxRefs)
	}
	r.Offset, r.Size = int64(len(v.Init)), size
	v.Refs = append(v.Refs, r)
	return nil
}

// byteOfAddress parses "0xff00(name)" and the like: the byte of an address that the mask selects.
func (p *initialiserParser) byteOfAddress() (r Ref, err error) {
	mask, ok := integer(p.tok.text)
	shift := bits.TrailingZeros64(mask)
	if !ok || shift%8 != 0 || mask>>shift != 0xff {
		return r, p.fail("%s is no mask of a byte", p.tok.text)
	}
	p.advance()
	if err = p.expect("("); err != nil {
		return r, err
	}
	if r, err = p.reference(); err != nil {
		return r, err
	}
	r.Shift = shift
	return r, p.expect(")")
}

// reference reads "name", "name+n" or "generic(name)+n".
func (p *initialiserParser) reference() (r Ref, err error) {
	name, err := p.name()
	if err != nil {
		return r, err
	}
	if name == "generic" && p.accept("(") {
		r.Generic = true
		if name, err = p.name(); err != nil {
			return r, err
		}
		if err = p.expect(")"); err != nil {
			return r, err
		}
	}
	if r.Func = p.mod.Funcs[name]; r.Func != nil {
		return r, p.pointed(r.Func)
	}
	if r.Var = p.mod.byName[name]; r.Var == nil || r.Var.Space == Shared {
		return r, p.fail("initialiser refers to %s, which is not a variable declared before", name)
	}
	r.Var.used = true
	add, err := p.plus()
	r.Add = int64(add)
	return r, err
}
