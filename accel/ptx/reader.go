package ptx

import "strings"

// reader is the state that the parts of the parser share: the text, the function that is being read, and the symbols. It
// lies in the instructionParser; the other parts refer to it.
type reader struct {
	tokens
	builder
	symbols
}

// symbols are the names that an object has declared outside functions.
type symbols struct {
	mod  *Module // of the object
	join *join   // of all objects
	// registersOfModule are declared outside functions.
	registersOfModule []registerDecl
}

// find returns the variable of a name in the innermost scope that has one, or of the module, and nil if there is none.
func (p *reader) find(name string) *Var {
	if v := p.scope.variable(name); v != nil {
		return v
	}
	v := p.mod.byName[name]
	if v != nil {
		v.used = true
	}
	return v
}

// undeclared returns the error for an undeclared name.
func (p *reader) undeclared(name string) error {
	for _, d := range p.registersOfModule {
		if number, ok := strings.CutPrefix(name, d.name); ok && (number == "" || d.counted) {
			return p.fail("%s is declared for the module, and not supported in functions that are called", name)
		}
	}
	return p.fail("%s is not declared", name)
}

// tableOf returns the first function of a variable that lists functions, or nil: all of them have its prototype.
func (p *reader) tableOf(name string) *Func {
	if v := p.find(name); v != nil && len(v.Refs) > 0 {
		return v.Refs[0].Func
	}
	return nil
}

// pointed returns an error if the address of a function can't be taken.
func (p *reader) pointed(f *Func) error {
	if f.Entry {
		return p.fail("the address of kernel %s is taken, which is not supported", f.Name)
	}
	return nil
}
