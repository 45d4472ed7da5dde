package main

import (
	"fmt"
	"strings"
)

// emitCalls makes a table of all symbols for programs that call each with arbitrary arguments and check the
// results against the documented ones.
func emitCalls(w *writer, s *spec) {
	w.cHeader("Every symbol: what its arguments are, how to call it, and which results are documented.")
	w.f("%s", callsHead)
	for _, tag := range sortedKeys(callStructs(s)) {
		emitFields(w, tag, s.Structs[tag])
	}
	for _, f := range s.Functions {
		w.f("static CUresult call_%s(const uint64_t *a)\n{\n\t(void)a;\n\treturn %s(%s);\n}\n\n", f.Symbol, f.Symbol, callArguments(s, f))
	}
	w.f("static const struct call calls[] = {\n")
	for _, f := range s.Functions {
		emitCallRow(w, s, f)
	}
	w.f("};\n\n#endif\n")
}

const callsHead = `#ifndef PEGASUS_ZZ_CALLS_H
#define PEGASUS_ZZ_CALLS_H

#define __CUDA_API_VERSION_INTERNAL
#define PEGASUS_CUDA_ALL
#include "cuda.h"

#include <stdbool.h>

/* What an argument is, or a field of a structure. */
enum kind {
	KIND_NUMBER = 1,
	KIND_COUNT, /* of elements that another argument points to */
	KIND_FLOAT,
	KIND_DEVICE,
	KIND_ADDRESS, /* on a device */
	KIND_MEMORY,  /* points to anything */
	KIND_STRUCT,  /* points to a structure whose fields are known */
	KIND_POINTERS, /* points to pointers */
	KIND_TEXT,
	KIND_CALLBACK,
	KIND_VALUE, /* a structure by value: zeros */
	KIND_CONTEXT,
	KIND_MODULE,
	KIND_FUNCTION,
	KIND_STREAM,
	KIND_EVENT,
	KIND_ARRAY,
	KIND_TEXTURE,
	KIND_LIBRARY,
	KIND_KERNEL,
	KIND_MIPMAP,
	KIND_HANDLE, /* of a kind that nothing makes */
};

struct field {
	unsigned short offset, bytes;
	enum kind kind;
};

struct parameter {
	enum kind kind;
	unsigned short bytes, fieldCount;
	const struct field *fields;
};

struct call {
	const char *name;
	CUresult (*call)(const uint64_t *arguments);
	bool implemented, beforeInit;
	int parameterCount;
	struct parameter parameters[16];
	short resultCount, results[32]; /* documented ones */
};

#define ARGUMENT(kind) {KIND_##kind, 0, 0, NULL}
#define STRUCTURE(tag, bytes) {KIND_STRUCT, bytes, sizeof fields_##tag / sizeof *fields_##tag, fields_##tag}

`

// structOf returns the tag of the structure that an input of an implemented function points to.
func structOf(s *spec, f *function, p param) string {
	name, ok := strings.CutSuffix(strings.TrimPrefix(p.Type, "const "), " *")
	if !ok || p.Class != "struct*" || f.kind(s) == kindStub {
		return ""
	}
	for _, tag := range sortedKeys(s.Structs) {
		for _, t := range typedefs(tag, s.Structs[tag]) {
			if t == name && s.Structs[tag].known() {
				return tag
			}
		}
	}
	return ""
}

// callStructs returns the tags of all structures that callers fill.
func callStructs(s *spec) map[string]bool {
	tags := map[string]bool{}
	for _, f := range s.Functions {
		for _, p := range f.Params {
			if tag := structOf(s, f, p); tag != "" {
				tags[tag] = true
			}
		}
	}
	return tags
}

func emitFields(w *writer, tag string, st *structure) {
	w.f("static const struct field fields_%s[] = {\n", tag)
	for _, f := range st.Fields {
		if f.Type != "struct" && f.Type != "union" {
			w.f("\t{%d, %d, KIND_%s}, /* %s */\n", f.Offset, f.Size, kindOf(f.Name, f.Type, ""), f.Name)
		}
	}
	w.f("};\n\n")
}

// handleKinds are the handles of objects that a program can create.
var handleKinds = map[string]string{
	"CUcontext": "CONTEXT", "CUmodule": "MODULE", "CUfunction": "FUNCTION", "CUstream": "STREAM",
	"CUevent": "EVENT", "CUarray": "ARRAY", "CUtexObject": "TEXTURE", "CUlibrary": "LIBRARY", "CUkernel": "KERNEL",
	"CUmipmappedArray": "MIPMAP",
}

// kindOf returns the kind of an argument or field, by its name, type and class if any.
func kindOf(name, ctype, class string) string {
	switch {
	case handleKinds[ctype] != "":
		return handleKinds[ctype]
	case class == "handle", class == "handle64":
		return "HANDLE"
	case class == "callback":
		return "CALLBACK"
	case class == "struct":
		return "VALUE"
	case ctype == "CUdevice":
		return "DEVICE"
	case strings.HasPrefix(ctype, "CUdeviceptr") && !strings.HasSuffix(ctype, "*"):
		return "ADDRESS"
	case ctype == "const char *":
		return "TEXT"
	case strings.HasSuffix(ctype, "**"):
		return "POINTERS"
	case strings.HasSuffix(ctype, "*"):
		return "MEMORY"
	case ctype == "float":
		return "FLOAT"
	case strings.HasPrefix(name, "num") && name != "numbytes", name == "len":
		return "COUNT"
	}
	return "NUMBER"
}

// isStructure reports whether a function gets a structure by value. The data has the class "struct" for
// parameters of some enumerations, too.
func isStructure(s *spec, p param) bool {
	if p.Class != "struct" {
		return false
	}
	for _, e := range s.Enums {
		if e.Typedef == p.Type {
			return false
		}
	}
	return true
}

func callArguments(s *spec, f *function) string {
	var args []string
	for i, p := range f.Params {
		switch {
		case isStructure(s, p):
			args = append(args, fmt.Sprintf("(%s){0}", p.Type))
		case p.Type == "float":
			args = append(args, fmt.Sprintf("(float)a[%d]", i))
		default:
			args = append(args, fmt.Sprintf("(%s)(uintptr_t)a[%d]", p.Type, i))
		}
	}
	return strings.Join(args, ", ")
}

func emitCallRow(w *writer, s *spec, f *function) {
	w.f("\t{\"%s\", call_%s, %t, %t, %d, {", f.Symbol, f.Symbol, f.kind(s) != kindStub, f.decision.BeforeInit, len(f.Params))
	for _, p := range f.Params {
		if tag := structOf(s, f, p); tag != "" {
			w.f("STRUCTURE(%s, %d), ", tag, s.Structs[tag].Size)
			continue
		}
		class := p.Class
		if class == "struct" && !isStructure(s, p) {
			class = "enum"
		}
		w.f("ARGUMENT(%s), ", kindOf(p.Name, p.Type, class))
	}
	w.f("}, %d, {", len(f.results))
	for i, n := range f.results {
		if i > 0 {
			w.f(", ")
		}
		w.f("%d", n)
	}
	w.f("}},\n")
}
