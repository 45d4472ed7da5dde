package ptx

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

// link links texts, each of which is given its head.
func link(texts ...string) (*Module, error) {
	var objects []Object
	for _, t := range texts {
		objects = append(objects, Object{Text: []byte(head + t)})
	}
	return Link(objects, AtLoad)
}

func mustLink(t *testing.T, texts ...string) *Module {
	t.Helper()
	m, err := link(texts...)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func global(t *testing.T, m *Module, name string) *Var {
	t.Helper()
	var found *Var
	for _, v := range m.Globals {
		if v.Name == name && found != nil {
			t.Fatalf("two variables %s", name)
		}
		if v.Name == name {
			found = v
		}
	}
	if found == nil {
		t.Fatalf("no variable %s", name)
	}
	return found
}

// A variable that one object declares another one defines, in either order.
func TestLinkVariables(t *testing.T) {
	declares := ".extern .global .align 4 .u32 n[];\n.extern .const .u32 c;\n.visible .global .u64 p[2] = {n+4, generic(n)};\n" +
		".entry k() { .reg .u32 %r; ld.global.u32 %r, [n]; ld.const.u32 %r, [c]; ret; }"
	defines := ".visible .global .align 4 .u32 n[3] = {1,2,3};\n.visible .const .u32 c = 7;"
	for name, texts := range map[string][]string{"after": {declares, defines}, "before": {defines, declares}} {
		m := mustLink(t, texts...)
		n := global(t, m, "n")
		if n.Size != 12 || n.Init[4] != 2 || n.Extern {
			t.Errorf("%s: n is %+v", name, n)
		}
		if c := global(t, m, "c"); c.Init[0] != 7 {
			t.Errorf("%s: c is %+v", name, c)
		}
		p := global(t, m, "p")
		if len(p.Refs) != 2 || p.Refs[0].Var != n || p.Refs[0].Add != 4 || p.Refs[1].Var != n {
			t.Errorf("%s: p is %+v", name, p)
		}
		b, err := m.Kernel("k").Body()
		if err != nil {
			t.Fatal(err)
		}
		if b.Insts[0].Args[1].Var != n {
			t.Errorf("%s: the kernel refers to %+v", name, b.Insts[0].Args[1].Var)
		}
	}
}

// The better of two definitions is taken, and common variables are as large as the largest.
func TestLinkWeak(t *testing.T) {
	weak, strong := ".weak .global .u32 n = 1;", ".visible .global .u32 n[2] = {2, 3};"
	common, large := ".common .global .align 8 .u32 n;", ".common .global .u32 n[5];"
	for _, c := range []struct {
		texts []string
		size  int64
		first byte
		align int
	}{
		{[]string{weak, strong}, 8, 2, 4}, {[]string{strong, weak}, 8, 2, 4}, {[]string{weak, weak}, 4, 1, 4},
		{[]string{common, large}, 20, 0, 8}, {[]string{large, common}, 20, 0, 8},
		{[]string{common, strong, large}, 8, 2, 8}, {[]string{common, weak}, 4, 1, 8},
	} {
		n := global(t, mustLink(t, c.texts...), "n")
		if first := append(n.Init, 0)[0]; n.Size != c.size || first != c.first || n.Align != c.align {
			t.Errorf("%q: %d bytes from %d, aligned to %d", c.texts, n.Size, first, n.Align)
		}
	}
}

// constant is the immediate that a kernel's first instruction, after inlining, moves.
func constant(t *testing.T, m *Module, kernel string) uint64 {
	t.Helper()
	b, err := m.Kernel(kernel).Body()
	if err != nil {
		t.Fatal(err)
	}
	return b.Insts[0].Args[1].Imm
}

// A static function or variable is a different one in each object; a visible one is the same.
func TestLinkFunctions(t *testing.T) {
	const object = ".func f();\n.global .u32 n = 5;\n.extern .func g();\n" +
		".visible .entry K() { call f; ret; }\n.visible .entry KG() { call g; ret; }\n" +
		".func f() { .reg .u32 %r; mov.u32 %r, N; ret; }"
	with := func(k, n string) string { return strings.NewReplacer("K", k, "N", n).Replace(object) }
	m := mustLink(t, with("a", "1"), ".weak .func g() { .reg .u32 %r; mov.u32 %r, 3; ret; }",
		with("b", "2"), ".visible .func g() { .reg .u32 %r; mov.u32 %r, 4; ret; }\n.weak .func h() { ret; }")
	for kernel, want := range map[string]uint64{"a": 1, "b": 2, "aG": 4, "bG": 4} {
		if got := constant(t, m, kernel); got != want {
			t.Errorf("%s moves %d, want %d", kernel, got, want)
		}
	}
	if len(m.Kernels) != 4 {
		t.Errorf("%d kernels", len(m.Kernels))
	}
	if global(t, m, "n") == nil || len(m.Globals) != 2 {
		t.Errorf("%d variables", len(m.Globals))
	}
}

// Each object has a version and a target of its own.
func TestLinkVersions(t *testing.T) {
	m, err := Link([]Object{
		{Text: []byte(".version 1.4\n.target sm_11\n.extern .func g();\n.entry k() { .reg .f32 %f; add.f32 %f, %f, %f; call g; ret; }")},
		{Text: []byte(".version 7.0\n.target sm_75\n.visible .func g() { .reg .f32 %f; add.f32 %f, %f, %f; ret; }")},
	}, AtLoad)
	if err != nil {
		t.Fatal(err)
	}
	if m.Version != [2]int{7, 0} || m.Target != "sm_75" {
		t.Errorf("version %v for %s", m.Version, m.Target)
	}
	b, err := m.Kernel("k").Body()
	if err != nil {
		t.Fatal(err)
	}
	var flushes []bool
	for i := range b.Insts {
		if b.Insts[i].Op == OpOf("add") {
			flushes = append(flushes, b.Insts[i].Mods.Has(FTZ))
		}
	}
	if len(flushes) != 2 || !flushes[0] || flushes[1] {
		t.Errorf("additions flush: %v", flushes)
	}
}

// Shared variables of several objects are one.
func TestLinkShared(t *testing.T) {
	m := mustLink(t,
		".extern .shared .u32 stack[32];\n.extern .func g();\n.entry k() { .reg .u32 %r; mov.u32 %r, stack; call g; ret; }",
		".visible .shared .u32 stack[32];\n.visible .func g() { .reg .u32 %r; mov.u32 %r, stack; ret; }")
	if got := m.Kernel("k").StaticShared; got != 128 {
		t.Errorf("%d bytes of shared memory", got)
	}
}

func TestLinkMistakes(t *testing.T) {
	for _, c := range []struct {
		msg   string
		line  int
		texts []string
	}{
		{"object 2: f is defined twice, also in line 4 of object 1", 5, []string{".visible .func f() { ret; }", "\n.visible .func f() { ret; }"}},
		{"object 2: k is defined twice", 4, []string{".entry k() { ret; }", ".entry k() { ret; }"}},
		{"object 2: n is declared twice, also in line 4 of object 1", 4, []string{".visible .global .u32 n;", ".visible .global .u32 n = 1;"}},
		{"object 2: n has another size", 4, []string{".visible .global .u32 n;", ".extern .global .u32 n[2];"}},
		{"object 2: n is in another state space", 4, []string{".visible .global .u32 n;", ".extern .const .u32 n;"}},
		{"object 2: f has other parameters than in line 4 of object 1", 4, []string{".extern .func f(.param .b32 a);", ".visible .func f(.param .b64 a) { ret; }"}},
		{"object 2: f has other parameters", 4, []string{".visible .func f() { ret; }", ".visible .entry f() { ret; }"}},
		{"object 1: function f is not defined", 6, []string{".extern .func f();\n.entry k() {\ncall f; ret; }", ".func f() { ret; }"}},
		{"object 2: extern variable n is not defined", 4, []string{".global .u32 n;", ".extern .global .u32 n;\n.entry k() { .reg .u64 %a; mov.u64 %a, n; }"}},
		{"object 2: kernel k: unknown instruction frobnicate", 4, []string{"", ".entry k() { frobnicate; }"}},
		{"object 2: kernel k: call of f, which is not a declared function", 4, []string{".visible .func f() { ret; }", ".entry k() { call f; }"}},
	} {
		_, err := link(c.texts...)
		var e *Error
		if !errors.As(err, &e) || e.Result != ErrInvalidPTX || e.Line != c.line || !strings.Contains(e.Msg, c.msg) {
			t.Errorf("%q: %v, want line %d: %s", c.texts, err, c.line, c.msg)
		}
	}
}

// An error of the module as a whole has no line.
func TestLinkNothing(t *testing.T) {
	if _, err := Link(nil, AtLoad); err == nil || !strings.HasPrefix(err.Error(), "ptx: 0 objects cannot be linked, but 1 to ") {
		t.Error(err)
	}
}

// A declared and unused symbol need not be defined. A missing name is found when all objects are there.
func TestLinkUndefined(t *testing.T) {
	unused := head + ".extern .global .u32 n;\n.extern .func f();\n.entry k() { ret; }"
	if m, err := Link([]Object{{Text: []byte(unused)}}, AtLoad); err != nil || len(m.Globals) != 0 {
		t.Errorf("unused: %v", err)
	}
	open := Object{Name: "open\x1b.ptx", Text: []byte(head + ".extern .func f();\n.entry k() { call f; ret; }")}
	if err := Check([]Object{open}, AtLoad); err != nil {
		t.Errorf("check: %v", err)
	}
	if _, err := Link([]Object{open}, AtLoad); err == nil || !strings.Contains(err.Error(), "open?.ptx: function f is not defined") {
		t.Errorf("link: %v", err)
	}
	if _, err := Link(nil, AtLoad); err == nil {
		t.Error("nothing was linked")
	}
	if _, err := Link(make([]Object, MaxObjects+1), AtLoad); err == nil {
		t.Error("too many objects were linked")
	}
}

// Texts between separators are objects.
func FuzzLink(f *testing.F) {
	sep := []byte("\x01")
	f.Add([]byte(head + ".extern .func f(); .weak .global .u32 n; .entry k() { call f; }\x01" + head + ".visible .func f() { ret; } .common .global .u32 n[2];"))
	f.Add([]byte(head + ".extern .shared .u32 s[]; .func f() { .reg .u32 %r; mov.u32 %r, s; ret; }\x01" + head + ".visible .shared .u32 s[4]; .func f() { ret; }"))
	f.Fuzz(func(t *testing.T, src []byte) {
		var objects []Object
		for _, text := range bytes.Split(src, sep) {
			objects = append(objects, Object{Text: text})
		}
		m, err := Link(objects, AtLoad)
		if err != nil {
			return
		}
		for _, k := range m.Kernels {
			if b, err := k.Body(); err == nil {
				b.Allocate(b.Blocks())
			}
		}
	})
}
