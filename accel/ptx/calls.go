package ptx

import (
	"cmp"
	"slices"
)

// A call is inlined, unless the function calls itself, is called by its address or is large: then the function is a
// unit of the body, which has a frame of its own.

// Transfers reports whether the instruction is a call that is neither inlined nor of a function that the engine
// provides.
func (in *Inst) Transfers() bool {
	return in.Op == opCall && (in.Args[0].Reg != None || in.Args[0].Func.Defined)
}

// called parses the name of the function of a call, with the arguments after it.
func (p *instructionParser) called(o *Operand) (name string, err error) {
	if name, err = p.name(); err != nil {
		return "", err
	}
	if r, ok := p.scope.register(name); ok {
		if p.fn.Regs[r].Size() != 8 {
			return "", p.fail("%s can't hold the address of a function", name)
		}
		o.Reg = r
	} else if o.Func = p.mod.Funcs[name]; o.Func == nil {
		return "", p.fail("call of %s, which is not a declared function", name)
	} else if o.Func.Entry {
		return "", p.fail("call of %s, which is a kernel", name)
	}
	more := p.accept(",")
	if more && p.tok.is("(") {
		args, err := p.list("(", ")", 0)
		if err != nil {
			return "", err
		}
		o.Elems = append(o.Elems, args...)
		more = p.accept(",")
	}
	switch {
	case o.Reg == None && more:
		return "", p.fail("%q after the arguments of a direct call", p.tok.text)
	case o.Reg == None:
		return name, nil
	case !more:
		return "", p.fail("an indirect call needs a prototype")
	}
	label, err := p.name()
	if err != nil {
		return "", err
	}
	if o.Func = p.scope.prototype(label); o.Func == nil {
		o.Func = p.tableOf(label)
	}
	if o.Func == nil {
		return "", p.fail("%s is not the label of a .callprototype before", label)
	}
	return name, nil
}

// prototype parses the text after the label of a .callprototype or a .calltargets; the prototype of the latter is that
// of its first function.
func (p *parser) prototype(label string) error {
	var f *Func
	var err error
	if p.advance().text == ".callprototype" {
		f, err = p.shape()
	} else {
		f, err = p.targetList()
	}
	if err != nil {
		return err
	}
	if p.scope.prototypes == nil {
		p.scope.prototypes = map[string]*Func{}
	}
	p.scope.prototypes[label] = f
	return p.expect(";")
}

// shape parses "(returns) _ (parameters)".
func (p *parser) shape() (*Func, error) {
	f := &Func{Line: p.tok.line}
	outer := p.scope
	p.scope = newScope(nil) // the names mean nothing
	defer func(n int) { p.scope, p.fn.inRegisters = outer, p.fn.inRegisters[:n] }(len(p.fn.inRegisters))
	var err error
	if p.tok.is("(") {
		if f.Returns, err = p.declarations.params(f, true); err != nil {
			return nil, err
		}
	}
	if f.Name, err = p.name(); err != nil {
		return nil, err
	}
	if p.tok.is("(") {
		if f.Params, err = p.declarations.params(f, false); err != nil {
			return nil, err
		}
	}
	return f, p.declarations.attributes(f)
}

// targetList parses the functions of a .calltargets.
func (p *parser) targetList() (first *Func, err error) {
	for {
		name, err := p.name()
		if err != nil {
			return nil, err
		}
		f := p.mod.Funcs[name]
		if f == nil {
			return nil, p.fail("%s is not a declared function", name)
		}
		if first == nil {
			first = f
		}
		if !p.accept(",") {
			return first, nil
		}
	}
}

// prototype finds the prototype at a label.
func (s *scope) prototype(label string) *Func {
	for ; s != nil; s = s.outer {
		if f := s.prototypes[label]; f != nil {
			return f
		}
	}
	return nil
}

// findPointed lists the functions of which the address is taken.
func (m *Module) findPointed() error {
	seen := map[*Func]bool{}
	add := func(f *Func, line int) error {
		d := m.Funcs[f.Name]
		if d == nil || !d.Defined {
			return &Error{line, inObject(f.Object, "function "+f.Name+", whose address is taken, is not defined"), ErrInvalidPTX}
		}
		if !seen[d] {
			seen[d] = true
			m.Pointed = append(m.Pointed, d)
		}
		return nil
	}
	for _, v := range m.Globals {
		for _, r := range v.Refs {
			if r.Func == nil {
				continue
			}
			if err := add(r.Func, v.Line); err != nil {
				return err
			}
		}
	}
	for _, f := range m.Funcs {
		for _, u := range f.code.uses {
			if u.kind != ofPointer {
				continue
			}
			if err := add(u.fn, int(u.line)); err != nil {
				return err
			}
		}
	}
	slices.SortFunc(m.Pointed, func(a, b *Func) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	return nil
}

// largest bounds the instructions of an inlined function, with those of the functions that are inlined in it; deepest
// bounds the depth of inlining.
const (
	largest = 300
	deepest = 16
)

// Unbounded exceeds the size of any function.
const Unbounded = 1 << 30

// reach contains the resources that a function uses, with the functions that it calls directly.
type reach struct {
	shared   []*Var
	local    int64 // bytes of its frame with the deepest callee's
	size     int   // instructions, with those of the calls that are inlined
	total    int   // instructions, registers and variables, with those of all calls
	depth    int   // of calls that are inlined
	indirect bool  // calls functions by their address
	heap     bool  // allocates or frees memory
	tells    bool  // prints, or asserts
	apart    bool  // is not inlined
	refusal  *Error

	// State of Tarjan's algorithm, which finds functions that call each other.
	index, low int
	done       bool
}

type linker struct {
	mod   *Module
	known map[*Func]*reach
	stack []*Func // functions that are not done
	work  int     // variables that were passed on from functions to their callers
}

func newLinker(m *Module) *linker { return &linker{mod: m, known: map[*Func]*reach{}} }

// kernel returns the reach of a kernel, with the functions that it can call by address.
func (l *linker) kernel(k *Func) (*reach, error) {
	own, err := l.reach(k)
	if err != nil || !own.indirect {
		return own, err
	}
	all := *own
	all.shared = slices.Clone(own.shared)
	seen := map[*Var]bool{}
	for _, v := range all.shared {
		seen[v] = true
	}
	for _, f := range l.mod.Pointed {
		r, err := l.reach(f)
		if err != nil {
			return nil, err
		}
		if err := l.passOn(&all, r, seen, k.Line); err != nil {
			return nil, err
		}
	}
	return &all, nil
}

// passOn adds the resources that one function uses to those of another.
func (l *linker) passOn(to, from *reach, seen map[*Var]bool, line int) error {
	if l.work += 1 + len(from.shared); l.work > workLimit {
		return &Error{line, "too many shared variables in the functions that are called", ErrInvalidPTX}
	}
	for _, v := range from.shared {
		if !seen[v] {
			seen[v] = true
			to.shared = append(to.shared, v)
		}
	}
	to.indirect = to.indirect || from.indirect
	to.heap = to.heap || from.heap
	to.tells = to.tells || from.tells
	to.refusal = cmp.Or(to.refusal, from.refusal)
	return nil
}

func (l *linker) reach(f *Func) (*reach, error) {
	if r := l.known[f]; r != nil {
		return r, nil
	}
	n := len(l.known) + 1
	r := &reach{index: n, low: n, size: f.code.count, total: f.code.count + len(f.Regs) + len(f.Vars), refusal: f.Refusal}
	l.known[f] = r
	l.stack = append(l.stack, f)
	if err := l.scan(f, r); err != nil {
		return nil, err
	}
	if r.local > maxLocalBytes {
		return nil, &Error{f.Line, localExcess("function", f, r.local), ErrInvalidPTX}
	}
	if r.low == r.index {
		return r, l.close(f, r)
	}
	return r, nil
}

// scan collects the resources that the instructions of a function use.
func (l *linker) scan(f *Func, r *reach) error {
	seen, called := map[*Var]bool{}, map[*Func]bool{}
	add := func(v *Var) {
		if v.Space == Shared && !seen[v] {
			seen[v] = true
			r.shared = append(r.shared, v)
		}
	}
	for _, v := range f.Vars {
		add(v)
	}
	r.apart = f.allocates // its allocations are freed when it returns
	below := int64(0)
	for i := range f.code.uses {
		u := &f.code.uses[i]
		switch u.kind {
		case ofShared:
			add(u.v)
			continue
		case ofPrototype:
			r.indirect, r.total = true, Unbounded
			continue
		case ofPointer:
			continue
		}
		callee := l.mod.Funcs[u.fn.Name]
		if !callee.Defined {
			if why := callee.builtin(); why != "" {
				return &Error{int(u.line), inObject(f.Object, "function "+callee.Name+why), ErrInvalidPTX}
			}
			r.heap = r.heap || callee.Name == "malloc" || callee.Name == "free"
			r.tells = r.tells || callee.Name == "vprintf" || callee.Name == "__assertfail"
			below = max(below, callee.frame(nil))
			continue
		}
		c, err := l.reach(callee)
		if err != nil {
			return err
		}
		if !c.done {
			r.low = min(r.low, c.low)
			r.apart, r.total = true, Unbounded // it calls itself, perhaps by way of others
			continue
		}
		r.total = min(r.total+c.total, Unbounded)
		if !c.apart {
			r.size = min(r.size+c.size, Unbounded)
			r.depth = max(r.depth, c.depth+1)
		}
		if called[callee] {
			continue
		}
		called[callee] = true
		if err := l.passOn(r, c, seen, int(u.line)); err != nil {
			return err
		}
		below = max(below, c.local)
	}
	r.local = f.frame(nil) + below
	return nil
}

// close ends a set of functions that call each other: each of them reaches the union of all.
func (l *linker) close(f *Func, r *reach) error {
	at := len(l.stack) - 1
	for l.stack[at] != f {
		at--
	}
	set := l.stack[at:]
	l.stack = l.stack[:at]
	if len(set) == 1 {
		r.done = true
		r.apart = r.apart || r.size > largest || r.depth >= deepest
		return nil
	}
	all, seen := reach{}, map[*Var]bool{}
	for _, g := range set {
		if err := l.passOn(&all, l.known[g], seen, g.Line); err != nil {
			return err
		}
	}
	for _, g := range set {
		one := l.known[g]
		one.shared, one.indirect, one.heap = all.shared, all.indirect, all.heap
		one.tells, one.refusal = all.tells, all.refusal
		one.apart, one.done = true, true
	}
	return nil
}
