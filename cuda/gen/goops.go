package main

import (
	"fmt"
	"strings"
)

var goClasses = map[string]string{"control": "ClassControl", "copy": "ClassCopy", "compute": "ClassCompute", "wait": "ClassWait"}
var goReplies = map[string]string{"always": "ReplyAlways", "never": "ReplyNever", "either": "ReplyEither"}

func emitGoOps(w *writer, s *spec) {
	w.header("//")
	w.f("\npackage cuda\n\nimport (\n\"encoding/binary\"\n\"math\"\n)\n\n")
	w.f("// The operations that travel through a call buffer.\nconst (\n")
	for _, o := range s.Ops {
		w.f("// Op%s: %s\nOp%s Op = %d\n", o.Name, o.Doc, o.Name, o.Num)
	}
	w.f(")\n\n// NumOps is one more than the largest operation.\nconst NumOps = %d\n\n", s.Ops[len(s.Ops)-1].Num+1)
	w.f("var ops = [NumOps]opInfo{\n")
	for _, o := range s.Ops {
		w.f("Op%s: {%q, %s, %s},\n", o.Name, o.Name, goClasses[o.Class], goReplies[o.Reply])
	}
	w.f("}\n\n")
	for _, o := range s.Ops {
		emitGoRecord(w, o.Name+"Args", "the arguments of", o.Name, o.Args)
		emitGoRecord(w, o.Name+"Result", "the results of", o.Name, o.Result)
	}
	emitGoHandler(w, s)
}

func emitGoRecord(w *writer, typ, what, op string, r record) {
	if r.empty() {
		return
	}
	w.f("// %s is %s %s: %d bytes", typ, what, op, r.Size)
	if r.Bytes != "" {
		w.f(" and what follows them")
	}
	w.f(".\ntype %s struct {\n", typ)
	for _, f := range r.Fields {
		if f.Count > 0 {
			w.f("%s [%d]%s\n", title(f.Name), f.Count, f.Kind.Go)
		} else {
			w.f("%s %s\n", title(f.Name), f.Kind.Go)
		}
	}
	if r.Bytes != "" {
		w.f("%s []byte // aliases the buffer that it was decoded from\n", title(r.Bytes))
	}
	w.f("}\n\n")
	emitGoDecode(w, typ, r)
	emitGoAppend(w, typ, r)
}

func emitGoDecode(w *writer, typ string, r record) {
	w.f("// Decode reads a from b and reports whether b has the right length.\nfunc (a *%s) Decode(b []byte) bool {\n", typ)
	switch {
	case r.Bytes == "":
		w.f("if len(b) != %d {\nreturn false\n}\n", r.Size)
	case r.Size > 0:
		w.f("if len(b) < %d {\nreturn false\n}\n", r.Size)
	}
	for _, f := range r.Fields {
		for i := range f.elements() {
			w.f("a.%s = %s\n", element(f, i), goGet(f.Kind, f.Offset+i*f.Kind.Bytes))
		}
	}
	if r.Bytes != "" {
		w.f("a.%s = b[%d:]\n", title(r.Bytes), r.Size)
	}
	w.f("return true\n}\n\n")
}

func emitGoAppend(w *writer, typ string, r record) {
	w.f("// Append encodes a after b.\nfunc (a *%s) Append(b []byte) []byte {\n", typ)
	at := 0
	for _, f := range r.Fields {
		pad(w, f.Offset-at)
		for i := range f.elements() {
			w.f("%s\n", goPut(f.Kind, "a."+element(f, i)))
		}
		at = f.Offset + f.Kind.Bytes*f.elements()
	}
	pad(w, r.Size-at)
	if r.Bytes != "" {
		w.f("b = append(b, a.%s...)\n", title(r.Bytes))
	}
	w.f("return b\n}\n\n")
}

func element(f wireField, i int) string {
	if f.Count == 0 {
		return title(f.Name)
	}
	return fmt.Sprintf("%s[%d]", title(f.Name), i)
}

func pad(w *writer, n int) {
	if n > 0 {
		w.f("b = append(b%s)\n", strings.Repeat(", 0", n))
	}
}

func goGet(k wireKind, at int) string {
	switch k.Name {
	case "u8":
		return fmt.Sprintf("b[%d]", at)
	case "u16", "u32", "u64":
		return fmt.Sprintf("binary.LittleEndian.Uint%d(b[%d:])", 8*k.Bytes, at)
	case "f32":
		return fmt.Sprintf("math.Float32frombits(binary.LittleEndian.Uint32(b[%d:]))", at)
	}
	return fmt.Sprintf("int%d(binary.LittleEndian.Uint%d(b[%d:]))", 8*k.Bytes, 8*k.Bytes, at)
}

func goPut(k wireKind, v string) string {
	switch k.Name {
	case "u8":
		return fmt.Sprintf("b = append(b, %s)", v)
	case "u16", "u32", "u64":
		return fmt.Sprintf("b = binary.LittleEndian.AppendUint%d(b, %s)", 8*k.Bytes, v)
	case "f32":
		return fmt.Sprintf("b = binary.LittleEndian.AppendUint32(b, math.Float32bits(%s))", v)
	}
	return fmt.Sprintf("b = binary.LittleEndian.AppendUint%d(b, uint%d(%s))", 8*k.Bytes, 8*k.Bytes, v)
}

func emitGoHandler(w *writer, s *spec) {
	w.f("// Handler carries out operations: one method each. A method that cannot answer\n// yet returns Deferred and sees to the reply itself.\ntype Handler interface {\n")
	for _, o := range s.Ops {
		w.f("%s(c Call", o.Name)
		if !o.Args.empty() {
			w.f(", a %sArgs", o.Name)
		}
		if o.Result.empty() {
			w.f(") Result\n")
		} else {
			w.f(") (%sResult, Result)\n", o.Name)
		}
	}
	w.f("}\n\n")
	w.f(`// Dispatch decodes a payload, calls h and appends what the call answers, if not
// Deferred, to reply. It is false, and h was not called, when the operation is unknown, the
// payload has the wrong length, or the caller waits for a reply that the
// operation does not give (or does not wait for one that it must).
func Dispatch(h Handler, c Call, payload, reply []byte) ([]byte, Result, bool) {
	if !c.Op.wellFormed(c.Reply) {
		return reply, 0, false
	}
	switch c.Op {
`)
	for _, o := range s.Ops {
		w.f("case Op%s:\n", o.Name)
		arg := ""
		if o.Args.empty() {
			w.f("if len(payload) != 0 {\nreturn reply, 0, false\n}\n")
		} else {
			w.f("var a %sArgs\nif !a.Decode(payload) {\nreturn reply, 0, false\n}\n", o.Name)
			arg = ", a"
		}
		if o.Result.empty() {
			w.f("return reply, h.%s(c%s), true\n", o.Name, arg)
			continue
		}
		w.f("out, r := h.%s(c%s)\nif r != Deferred {\nreply = out.Append(reply)\n}\nreturn reply, r, true\n", o.Name, arg)
	}
	w.f("}\nreturn reply, 0, false\n}\n")
}
