package ptx

import "strconv"

// scope is a pair of braces within a function: registers, variables and labels
// declared in it hide those outside.
type scope struct {
	outer  *scope
	regs   map[string]int32
	ranges map[string]regRange
	// vectors are registers with .v2 or .v4, and branches the lists of .branchtargets.
	vectors  map[string]regRange
	branches map[string][]string
	vars     map[string]*Var
	labels   map[string]int
	// prototypes are of indirect calls, by label; nil if there are none.
	prototypes map[string]*Func
	// pending are branches to labels that this scope has not shown yet.
	pending []fixup
}

// regRange is what ".reg .t %r<n>" declares.
type regRange struct{ first, count int32 }

// fixup is a branch that waits for its label.
type fixup struct {
	inst  int
	label string
	line  int
}

func newScope(outer *scope) *scope {
	return &scope{outer: outer, regs: map[string]int32{}, ranges: map[string]regRange{}, vars: map[string]*Var{}, labels: map[string]int{}}
}

// register finds a register by its name.
func (s *scope) register(name string) (int32, bool) {
	cut := len(name)
	for cut > 0 && digit(name[cut-1]) {
		cut--
	}
	n, err := strconv.ParseInt(name[cut:], 10, 32)
	numbered := err == nil && (name[cut] != '0' || cut+1 == len(name))
	for ; s != nil; s = s.outer {
		if r, ok := s.regs[name]; ok {
			return r, true
		}
		if numbered {
			if g, ok := s.ranges[name[:cut]]; ok && int32(n) < g.count {
				return g.first + int32(n), true
			}
		}
	}
	return 0, false
}

func (s *scope) variable(name string) *Var {
	for ; s != nil; s = s.outer {
		if v, ok := s.vars[name]; ok {
			return v
		}
	}
	return nil
}

// registers reads ".reg .type %r<n>, %x, …;".
func (p *parser) registers() error {
	p.advance()
	if p.tok.kind != word || p.tok.text[0] != '.' {
		return p.fail("%q where a type is expected", p.tok.text)
	}
	p.split()
	lanes := int64(1)
	if n, ok := vectorTypes[p.tok.text]; ok {
		lanes = n
		if p.advance(); p.tok.kind != word || p.tok.text[0] != '.' {
			return p.fail("%q where a type is expected", p.tok.text)
		}
		p.split()
	}
	t, ok := typeByName[p.tok.text[1:]]
	if !ok || !t.declarable() {
		return p.fail("registers of type %s are not supported", p.tok.text)
	}
	p.advance()
	for {
		name, err := p.name()
		if err != nil {
			return err
		}
		count := int64(1)
		ranged := p.accept("<")
		if ranged {
			if count, err = p.number(maxRegisters); err != nil {
				return err
			}
			if err = p.expect(">"); err != nil {
				return err
			}
		}
		vectors := count
		count *= lanes
		first := int32(len(p.fn.Regs))
		if p.regs += max(int(count), 1); p.regs > maxRegisters {
			return p.fail("more than %d registers", maxRegisters)
		}
		for range count {
			p.fn.Regs = append(p.fn.Regs, t)
		}
		switch {
		case lanes > 1 && ranged:
			for i := range int32(vectors) {
				p.scope.setVector(name+strconv.Itoa(int(i)), regRange{first + i*int32(lanes), int32(lanes)})
			}
		case lanes > 1:
			p.scope.setVector(name, regRange{first, int32(count)})
		case ranged:
			p.scope.ranges[name] = regRange{first, int32(count)}
		default:
			p.scope.regs[name] = first
		}
		if !p.accept(",") {
			return p.expect(";")
		}
	}
}

// leave closes the innermost scope and resolves its branches.
func (p *parser) leave() error {
	s := p.scope
	p.scope = s.outer
	for _, f := range s.pending {
		at, ok := s.labels[f.label]
		switch {
		case ok:
			p.fn.Insts[f.inst].Args[0].Imm = uint64(at)
		case s.outer != nil:
			s.outer.pending = append(s.outer.pending, f)
		default:
			return &Error{f.line, "no label " + f.label, ErrInvalidPTX}
		}
	}
	return nil
}
