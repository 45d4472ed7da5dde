package ptx

import (
	"fmt"
	"slices"
)

// link computes what depends on several functions: memory sizes, recursion.
func (m *Module) link() error {
	for _, v := range m.Globals {
		if v.Extern {
			return &Error{v.Line, inObject(v.Object, "extern variable "+v.Name+" is not defined"), ErrInvalidPTX}
		}
	}
	consts := int64(0)
	for _, v := range m.Globals {
		if v.Space == Const {
			consts += v.Size
		}
	}
	l := newLinker(m)
	for _, k := range m.Kernels {
		r, err := l.reach(k, 0)
		if err != nil {
			return err
		}
		k.StaticShared = int(sharedLayout(r.shared, nil))
		k.LocalBytes, k.ConstBytes = int(r.local), int(consts)
		k.NumRegs = min(max(len(k.Regs)/4, 16), 255)
		if int64(k.StaticShared) > maxSharedBytes {
			return &Error{k.Line, fmt.Sprintf("kernel %.100s uses %d bytes of shared memory, at most %d", k.Name, k.StaticShared, maxSharedBytes), ErrInvalidPTX}
		}
	}
	return nil
}

// reach is what a function uses, with all that it calls.
type reach struct {
	shared  []*Var
	local   int64 // bytes of a frame with the deepest callee's
	visited bool
}

// linker finds what functions reach.
type linker struct {
	mod   *Module
	known map[*Func]*reach
	work  int // variables that were passed on from functions to their callers
}

func newLinker(m *Module) *linker { return &linker{mod: m, known: map[*Func]*reach{}} }

func (l *linker) reach(f *Func, depth int) (*reach, error) {
	if r := l.known[f]; r != nil {
		if !r.visited {
			return nil, &Error{f.Line, "function " + f.Name + " is recursive, which is not supported", ErrInvalidPTX}
		}
		return r, nil
	}
	if depth > maxDepth {
		return nil, &Error{f.Line, "calls are nested too deeply", ErrInvalidPTX}
	}
	r := &reach{}
	l.known[f] = r
	seen, called := map[*Var]bool{}, map[*Func]bool{}
	add := func(v *Var) {
		if v != nil && v.Space == Shared && !seen[v] {
			seen[v] = true
			r.shared = append(r.shared, v)
		}
	}
	for _, v := range f.Vars {
		add(v)
	}
	deepest := int64(0)
	for i := range f.Insts {
		for j := range f.Insts[i].Args {
			o := &f.Insts[i].Args[j]
			add(o.Var)
			for k := range o.Elems {
				add(o.Elems[k].Var)
			}
			if o.Func == nil {
				continue
			}
			callee := l.mod.Funcs[o.Func.Name]
			if called[callee] {
				continue
			}
			called[callee] = true
			if !callee.Defined {
				if why := callee.builtin(); why != "" {
					return nil, &Error{int(f.Insts[i].Line), inObject(f.Object, "function "+callee.Name+why), ErrInvalidPTX}
				}
				deepest = max(deepest, callee.frame(nil))
				continue
			}
			c, err := l.reach(callee, depth+1)
			if err != nil {
				return nil, err
			}
			if l.work += len(c.shared); l.work > workLimit {
				return nil, &Error{int(f.Insts[i].Line), "too many shared variables in the functions that are called", ErrInvalidPTX}
			}
			for _, v := range c.shared {
				add(v)
			}
			deepest = max(deepest, c.local)
		}
	}
	r.local = f.frame(nil) + deepest
	if r.local > maxLocalBytes {
		return nil, &Error{f.Line, "function " + f.Name + " uses too much local memory", ErrInvalidPTX}
	}
	r.visited = true
	return r, nil
}

// signature has the bytes of what a function returns and of its parameters.
type signature struct{ returns, params []int }

// builtins are the functions that an engine provides.
var builtins = map[string]signature{
	"vprintf":      {[]int{4}, []int{8, 8}},
	"__assertfail": {nil, []int{8, 8, 4, 8, 8}},
}

// builtin says why a function that is only declared can't be called, or nothing.
func (f *Func) builtin() string {
	s, ok := builtins[f.Name]
	if !ok {
		return " is not defined"
	}
	if !sizes(f.Returns, s.returns) || !sizes(f.Params, s.params) {
		return " is declared with other parameters than it has"
	}
	return ""
}

func sizes(list []Param, want []int) bool {
	return slices.EqualFunc(list, want, func(p Param, n int) bool { return p.Size == n })
}

// frame lays out the local variables of a function, parameters of calls
// included, and returns the bytes they take, a multiple of 16.
func (f *Func) frame(place func(*Var, int64)) int64 {
	at := int64(0)
	put := func(v *Var) {
		if v.Space != Local && (v.Space != ParamSpace || v.Kernel) {
			return
		}
		a := int64(max(v.Align, 8))
		at = (at + a - 1) &^ (a - 1)
		if place != nil {
			place(v, at)
		}
		at += v.Size
	}
	for i := range f.Params {
		put(f.Params[i].v)
	}
	for i := range f.Returns {
		put(f.Returns[i].v)
	}
	for _, v := range f.Vars {
		put(v)
	}
	return (at + 15) &^ 15
}

// sharedLayout places static shared variables, then the extern ones, which all
// start where the static ones end, and returns the bytes of the static ones.
func sharedLayout(vars []*Var, place func(*Var, int64)) int64 {
	at := int64(0)
	for _, v := range vars {
		if v.Extern {
			continue
		}
		a := int64(max(v.Align, 1))
		at = (at + a - 1) &^ (a - 1)
		if place != nil {
			place(v, at)
		}
		at += v.Size
	}
	extern, a := false, int64(16)
	for _, v := range vars {
		if v.Extern {
			extern, a = true, max(a, int64(v.Align))
		}
	}
	if !extern {
		return at
	}
	at = (at + a - 1) &^ (a - 1)
	for _, v := range vars {
		if v.Extern && place != nil {
			place(v, at)
		}
	}
	return at
}
