package ptx

import (
	"bytes"
	"fmt"
	"slices"
)

// Object is one of the texts that a module is linked from.
type Object struct {
	Name string // for messages; it may be empty
	Text []byte
}

// MaxObjects bounds how many objects a module can be linked from.
const MaxObjects = 1 << 12

// Linkage is the visibility of a function or a variable of a module's outermost level.
type Linkage uint8

// The linkages, in the order of precedence: a definition is replaced by one of a later linkage.
const (
	StaticLinkage  Linkage = iota // visible in its object only
	ExternLinkage                 // refers to a definition in another object
	CommonLinkage                 // as large as the largest definition of its name
	WeakLinkage                   // replaced by a stronger definition of another object
	VisibleLinkage                // the single definition for all objects
)

var linkages = map[string]Linkage{".extern": ExternLinkage, ".common": CommonLinkage, ".weak": WeakLinkage, ".visible": VisibleLinkage}

// When selects when an instruction with an unknown opcode or form is refused.
type When bool

// An unknown instruction refuses the module, or only the kernels that reach it.
const (
	AtLoad   When = false
	AtLaunch When = true
)

// Link parses objects and joins them to one module. A non-static name denotes the same symbol in all of them, a static
// one a different symbol in each. An error is an *Error.
func Link(objects []Object, when When) (*Module, error) {
	p, err := parseObjects(objects, when)
	if err != nil {
		return nil, clip(err)
	}
	m := p.join.mod
	p.join.finish()
	if err := m.link(); err != nil {
		return nil, clip(err)
	}
	return m, nil
}

// Check parses objects as Link does, but allows undefined symbols.
func Check(objects []Object, when When) error {
	_, err := parseObjects(objects, when)
	return clip(err)
}

func parseObjects(objects []Object, when When) (*parser, error) {
	total := 0
	for i := range objects {
		if total += len(objects[i].Text); total > maxSource {
			return nil, &Error{0, "module is larger than 32 MiB", ErrInvalidPTX}
		}
	}
	if len(objects) == 0 || len(objects) > MaxObjects {
		return nil, &Error{0, fmt.Sprintf("%d objects cannot be linked, but 1 to %d", len(objects), MaxObjects), ErrInvalidPTX}
	}
	p := newParser(when, len(objects) > 1)
	for i := range objects {
		if err := p.object(&objects[i]); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func newModule() *Module { return &Module{Funcs: map[string]*Func{}, byName: map[string]*Var{}} }

// object parses one object into a module of its own and joins that to the others.
func (p *parser) object(o *Object) error {
	text := o.Text
	if i := bytes.IndexByte(text, 0); i >= 0 {
		text = text[:i]
	}
	p.join.begin(o.Name)
	p.begin(string(text))
	err := p.module()
	if p.lex.err != nil {
		err = p.lex.err
	}
	if err == nil {
		err = p.join.add(p.mod, p.all)
	}
	e, ok := err.(*Error)
	if !ok {
		return err
	}
	result := e.Result
	if !p.versioned {
		result = ErrInvalidImage
	}
	return &Error{e.Line, inObject(p.join.name, e.Msg), result}
}

// join is the module that objects are joined to.
type join struct {
	mod     *Module
	vars    map[string]*Var // that are not static, by name
	several bool            // objects are to come
	count   int             // of objects so far
	name    string          // of the current object, for messages; the only one may have none
}

// maxObjectName bounds the quoted length of an object's name in a message.
const maxObjectName = 80

func (j *join) begin(name string) {
	j.count++
	if name == "" && j.several {
		name = fmt.Sprintf("object %d", j.count)
	}
	j.name = quoteName(name)
}

// quoteName makes a name short and printable.
func quoteName(name string) string {
	clean := bytes.Map(func(r rune) rune {
		if r < ' ' || r == 127 {
			return '?'
		}
		return r
	}, []byte(name[:min(len(name), maxObjectName)]))
	return string(bytes.ToValidUTF8(clean, []byte("?")))
}

// inObject prefixes a message with the name of its object.
func inObject(object, msg string) string {
	if object == "" {
		return msg
	}
	return object + ": " + msg
}

// add merges the module of the current object; all lists its functions and declarations of functions.
func (j *join) add(m *Module, all []*Func) error {
	if m.Version[0] > j.mod.Version[0] || m.Version[0] == j.mod.Version[0] && m.Version[1] > j.mod.Version[1] {
		j.mod.Version, j.mod.Target = m.Version, m.Target
	}
	for _, f := range all {
		f.Module, f.Object = j.mod, j.name
		if j.static(f, m) {
			if j.several {
				f.Name = fmt.Sprintf("%s@%d", f.Name, j.count)
			}
			if f.Defined {
				j.mod.Funcs[f.Name] = f
			}
			continue
		}
		if err := j.function(f); err != nil {
			return err
		}
	}
	j.mod.Kernels = append(j.mod.Kernels, m.Kernels...)
	j.mod.Globals = append(j.mod.Globals, m.Globals...)
	j.mod.locals = append(j.mod.locals, m.locals...)
	return nil
}

// static reports whether a function is private to its object. A function that the object doesn't define must come from
// elsewhere, despite a static declaration.
func (j *join) static(f *Func, m *Module) bool {
	known := m.Funcs[f.Name]
	return known.Linkage == StaticLinkage && known.Defined && !known.Entry
}

// function adds a function that is visible to other objects.
func (j *join) function(f *Func) error {
	old := j.mod.Funcs[f.Name]
	if old == nil {
		j.mod.Funcs[f.Name] = f
		return nil
	}
	switch {
	case !sameShape(old, f):
		return &Error{f.Line, fmt.Sprintf("%s has other parameters than in %s", f.Name, where(old.Object, old.Line)), ErrInvalidPTX}
	case !f.Defined || old.Defined && f.Linkage == WeakLinkage:
	case !old.Defined || old.Linkage == WeakLinkage:
		j.mod.Funcs[f.Name] = f
	default:
		return &Error{f.Line, fmt.Sprintf("%s is defined twice, also in %s", f.Name, where(old.Object, old.Line)), ErrInvalidPTX}
	}
	return nil
}

// sameShape reports whether a call compiled for one also fits the other.
func sameShape(a, b *Func) bool {
	same := func(a, b Param) bool { return a.Size == b.Size }
	return a.Entry == b.Entry && slices.EqualFunc(a.Returns, b.Returns, same) && slices.EqualFunc(a.Params, b.Params, same)
}

// where returns the text for a position in another object, or in the only one.
func where(object string, line int) string {
	if object == "" {
		return fmt.Sprintf("line %d", line)
	}
	return fmt.Sprintf("line %d of %s", line, object)
}

// variable returns the one variable that v, declared in m, refers to: v itself, or an earlier declaration, which then
// takes over the additional properties of v.
func (j *join) variable(m *Module, v *Var) (*Var, error) {
	old := m.byName[v.Name]
	if old == nil && v.Linkage != StaticLinkage {
		old = j.vars[v.Name]
	}
	if old == nil {
		v.Object = j.name
		if v.Linkage != StaticLinkage {
			j.vars[v.Name] = v
		}
		return v, nil
	}
	return old, old.unite(v, j.name)
}

// unite merges another declaration of the same variable.
func (v *Var) unite(w *Var, object string) error {
	bad := func(what string) error {
		return &Error{w.Line, fmt.Sprintf("%s %s %s", w.Name, what, where(v.Object, v.Line)), ErrInvalidPTX}
	}
	if v.Space != w.Space {
		return bad("is in another state space in")
	}
	better := v.Extern && !w.Extern || !v.Extern && !w.Extern && v.gives() && w.Linkage > v.Linkage
	v.Align = max(v.Align, w.Align)
	switch {
	case v.Linkage == CommonLinkage && w.Linkage == CommonLinkage:
		v.Size = max(v.Size, w.Size)
	case !v.Extern && !w.Extern && !v.gives() && !w.gives():
		return bad("is declared twice, also in")
	case !v.gives() && !w.gives() && v.Size != w.Size && v.Size != 0 && w.Size != 0:
		return bad("has another size in")
	}
	if better {
		v.Size, v.Type, v.Init, v.Refs, v.Line = w.Size, w.Type, w.Init, w.Refs, w.Line
		v.Extern, v.Object = false, object
		v.Linkage = max(v.Linkage, w.Linkage)
	} else if v.Extern && w.Extern {
		v.Size = max(v.Size, w.Size)
	}
	return nil
}

// gives reports whether a definition may be replaced by another one.
func (v *Var) gives() bool { return v.Linkage == CommonLinkage || v.Linkage == WeakLinkage }

// finish drops replaced and unused definitions, and gives static variables unique names.
func (j *join) finish() {
	m := j.mod
	m.Kernels = slices.DeleteFunc(m.Kernels, func(f *Func) bool { return m.Funcs[f.Name] != f })
	m.Globals = slices.DeleteFunc(m.Globals, func(v *Var) bool { return v.Extern && !v.used })
	taken := map[string]bool{}
	for i, v := range m.Globals {
		if j.vars[v.Name] == v {
			continue
		}
		if j.vars[v.Name] != nil || taken[v.Name] {
			v.Name = fmt.Sprintf("%s@%d", v.Name, i)
		}
		taken[v.Name] = true
	}
}
