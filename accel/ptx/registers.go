package ptx

import (
	"slices"
	"strconv"
)

// registerDecl is one of the names of a ".reg".
type registerDecl struct {
	name    string
	typ     Type
	lanes   int32 // of a vector, or 1
	count   int32
	counted bool // is name<count>
}

// registers parses ".reg .type %r<n>, %x, …;".
func (p *declarationParser) registers() error {
	p.advance()
	d := registerDecl{lanes: 1}
	if err := p.registerType(&d); err != nil {
		return err
	}
	for {
		var err error
		if d.name, err = p.name(); err != nil {
			return err
		}
		count := int64(1)
		if d.counted = p.accept("<"); d.counted {
			if count, err = p.number(maxRegisters); err != nil {
				return err
			}
			if err = p.expect(">"); err != nil {
				return err
			}
		}
		d.count = int32(count)
		if p.fn == nil {
			if p.regs++; p.regs > maxRegisters {
				return p.fail("more than %d registers", maxRegisters)
			}
			p.registersOfModule = append(p.registersOfModule, d)
		} else if err := p.declareRegisters(&d); err != nil {
			return err
		}
		if !p.accept(",") {
			return p.expect(";")
		}
	}
}

// registerType parses ".type" or ".v2 .type". A register of 128 bits is a vector of two halves.
func (p *declarationParser) registerType(d *registerDecl) error {
	for {
		if p.tok.kind != word || p.tok.text[0] != '.' {
			return p.fail("%q where a type is expected", p.tok.text)
		}
		p.split()
		n, ok := vectorTypes[p.tok.text]
		if !ok || d.lanes > 1 {
			break
		}
		d.lanes = int32(n)
		p.advance()
	}
	var ok bool
	if d.typ, ok = typeByName[p.tok.text[1:]]; p.tok.text == ".b128" && d.lanes == 1 {
		d.typ, d.lanes = B64, 2
	} else if !ok || !d.typ.declarable() {
		return p.fail("registers of type %s are not supported", p.tok.text)
	}
	p.advance()
	return nil
}

// declareRegisters declares registers in the current scope.
func (p *declarationParser) declareRegisters(d *registerDecl) error {
	first, total := int32(len(p.fn.Regs)), d.count*d.lanes
	if p.regs += max(int(total), 1); p.regs > maxRegisters {
		return p.fail("more than %d registers", maxRegisters)
	}
	p.fn.Regs = slices.Grow(p.fn.Regs, int(total))
	for range total {
		p.fn.Regs = append(p.fn.Regs, d.typ)
	}
	switch {
	case d.lanes > 1 && d.counted:
		for i := range d.count {
			p.scope.setVector(d.name+strconv.Itoa(int(i)), regRange{first + i*d.lanes, d.lanes})
		}
	case d.lanes > 1:
		p.scope.setVector(d.name, regRange{first, d.lanes})
	case d.counted:
		p.scope.ranges[d.name] = regRange{first, d.count}
	default:
		p.scope.setRegister(d.name, first)
	}
	return nil
}

// inheritRegisters declares registers of a kernel for those that the module declares. Functions get none: they would
// share their caller's.
func (p *declarationParser) inheritRegisters() error {
	for i := range p.registersOfModule {
		if err := p.declareRegisters(&p.registersOfModule[i]); err != nil {
			return err
		}
	}
	return nil
}
