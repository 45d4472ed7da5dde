package ptx

import (
	"fmt"
	"slices"
)

// link computes properties that depend on several functions: memory sizes, recursion.
func (m *Module) link() error {
	for _, v := range m.Globals {
		if v.Extern {
			return &Error{v.Line, inObject(v.Object, "extern variable "+v.Name+" is not defined"), ErrInvalidPTX}
		}
	}
	for _, v := range m.locals {
		if v.Extern {
			return &Error{v.Line, inObject(v.Object, "extern variable "+v.Name+" is not defined"), ErrInvalidPTX}
		}
	}
	locals, consts := m.placeLocals(nil), int64(0)
	for _, v := range m.Globals {
		if v.Space == Const {
			consts += v.Size
		}
	}
	if err := m.findPointed(); err != nil {
		return err
	}
	l := newLinker(m)
	for _, k := range m.Kernels {
		r, err := l.kernel(k)
		if err != nil {
			return err
		}
		k.StaticShared = int(sharedLayout(r.shared, nil))
		local := locals + r.local
		if local > maxLocalBytes {
			return &Error{k.Line, localExcess("kernel", k, local), ErrInvalidPTX}
		}
		k.LocalBytes, k.ConstBytes = int(local), int(consts)
		k.Size = min(r.total+len(m.locals), Unbounded)
		k.Heap, k.Tells, k.Refusal = r.heap, r.tells, r.refusal
		k.NumRegs = min(max(len(k.Regs)/4, 16), 255)
		if int64(k.StaticShared) > maxSharedBytes {
			return &Error{k.Line, fmt.Sprintf("kernel %.100s uses %d bytes of shared memory, at most %d", k.Name, k.StaticShared, maxSharedBytes), ErrInvalidPTX}
		}
	}
	return nil
}

// signature has the sizes in bytes of a function's results and parameters.
type signature struct{ returns, params []int }

// builtins are the functions that an engine provides.
var builtins = map[string]signature{
	"vprintf":      {[]int{4}, []int{8, 8}},
	"__assertfail": {nil, []int{8, 8, 4, 8, 8}},
	"malloc":       {[]int{8}, []int{8}},
	"free":         {nil, []int{8}},
}

// builtin returns the reason why a function that is only declared can't be called, or "".
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

// placeLocals lays out the local variables of the module, at the start of each kernel's frame, and returns their bytes,
// a multiple of 16.
func (m *Module) placeLocals(place func(*Var, int64)) (at int64) {
	for _, v := range m.locals {
		at = putLocal(v, at, place)
	}
	return (at + 15) &^ 15
}

// frame lays out the local variables of a function, parameters of calls included, and returns their bytes, a multiple
// of 16.
func (f *Func) frame(place func(*Var, int64)) int64 {
	at := f.passing(place)
	for _, v := range f.Vars {
		at = putLocal(v, at, place)
	}
	return (at + 15) &^ 15
}

// passing lays out the arguments and results of a function, and returns the offset after them, where its frame begins.
func (f *Func) passing(place func(*Var, int64)) (at int64) {
	for _, list := range [][]Param{f.Params, f.Returns} {
		for i := range list {
			at = putLocal(list[i].v, at, place)
		}
	}
	return at
}

// GCC gives functions that a simd loop calls a stack of 128 bytes in local memory, however much they need. On devices
// the stack below it is free; here callers have their frames there, so room is left.
const (
	simtStack = "%simtstack_ar"
	simtRoom  = 4 << 10
)

// putLocal places a variable at or after at and returns where it ends.
func putLocal(v *Var, at int64, place func(*Var, int64)) int64 {
	if v.Space != Local && (v.Space != ParamSpace || v.Kernel) {
		return at
	}
	a := int64(max(v.Align, 8))
	if v.Name == simtStack {
		at += simtRoom
	}
	at = (at + a - 1) &^ (a - 1)
	if place != nil {
		place(v, at)
	}
	return at + v.Size
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

func localExcess(what string, f *Func, bytes int64) string {
	return fmt.Sprintf("%s %.100s uses %d bytes of local memory, at most %d", what, f.Name, bytes, maxLocalBytes)
}
