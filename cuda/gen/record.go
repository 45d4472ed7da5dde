package main

import (
	"fmt"
	"slices"
	"strings"
)

// emitRecorder makes the exported symbols of the library that records calls, and the table of their
// arguments' kinds.
func emitRecorder(w *writer, s *spec) {
	w.cHeader("The symbols of the library that records calls, and what their arguments are.")
	w.f(`#define __CUDA_API_VERSION_INTERNAL
#define PEGASUS_CUDA_ALL
#include "record.h"

#define EXPORT __attribute__((visibility("default")))
#define WORD(x) ((uint64_t)(uintptr_t)(x))

`)
	for i, f := range s.Functions {
		w.f("EXPORT %s\n{\n", prototype(f, f.Symbol))
		if byWords(f) {
			w.f("\treturn record_call(%d, (uint64_t[MAX_ARGUMENTS]){%s});\n}\n\n", i, words(f))
			continue
		}
		w.f("\t__typeof__(&%s) real = record_real(%d);\n\treturn real ? real(%s) : CUDA_ERROR_NOT_FOUND;\n}\n\n", f.Symbol, i, names(f))
	}
	w.f("const struct recorded recorded[] = {\n")
	for _, f := range s.Functions {
		w.f("\t{\"%s\", %s, %d, {", f.Symbol, f.Symbol, len(f.Params))
		for _, p := range f.Params {
			w.f("%s, ", recordedArgument(s, f, p))
		}
		w.f("}},\n")
	}
	w.f("};\nconst int recordedCount = sizeof recorded / sizeof *recorded;\n")
}

func emitRecorderMap(w *writer, s *spec) {
	w.cHeader("What the library that records calls shows.")
	w.f("{\nglobal:\n")
	for _, f := range s.Functions {
		w.f("\t%s;\n", f.Symbol)
	}
	w.f("local:\n\t*;\n};\n")
}

// byWords reports whether a function can be called by words in place of its arguments. Others are few, and
// not recorded.
func byWords(f *function) bool {
	return !slices.ContainsFunc(f.Params, func(p param) bool { return p.Class == "struct" || p.Type == "float" })
}

func words(f *function) string {
	if len(f.Params) == 0 {
		return "0"
	}
	var all []string
	for _, p := range f.Params {
		all = append(all, "WORD("+p.Name+")")
	}
	return strings.Join(all, ", ")
}

func names(f *function) string {
	var all []string
	for _, p := range f.Params {
		all = append(all, p.Name)
	}
	return strings.Join(all, ", ")
}

// recordedArgument returns the recorder's data of an argument: its kind, the size of the objects that it
// points to, and the argument that gives their number (-1: one object).
func recordedArgument(s *spec, f *function, p param) string {
	row := func(kind string, sized bool) string {
		size := "0"
		if sized {
			size = fmt.Sprintf("sizeof(%s)", strings.TrimSuffix(strings.TrimPrefix(p.Type, "const "), "*"))
		}
		count := slices.IndexFunc(f.Params, func(q param) bool { return q.Name == p.Len })
		return fmt.Sprintf("{%s, %s, %d}", kind, size, count)
	}
	counted := p.Len == "" || slices.ContainsFunc(f.Params, func(q param) bool { return q.Name == p.Len })
	in, out := p.Dir == "in", p.Dir == "out"
	switch p.Class {
	case "handle", "handle64", "devptr":
		return row("HANDLE", false)
	case "scalar", "enum", "device":
		return row("NUMBER", false)
	case "callback":
		return row("CALLBACK", false)
	case "char*":
		if in {
			return row("TEXT", false)
		}
	case "void**":
		if out && p.Len == "" {
			return row("OUT_HANDLES", true)
		}
	case "void*":
		if counted && p.Len != "" && in {
			return row("DATA_IN", false)
		}
		if counted && p.Len != "" && out {
			return row("DATA_OUT", false)
		}
	case "handle*", "handle64*", "devptr*":
		if counted && out {
			return row("OUT_HANDLES", true)
		}
		if counted {
			return row("IN_HANDLES", true)
		}
	case "scalar*", "enum*", "device*", "struct*":
		switch {
		case !counted || !s.complete(p):
		case in:
			return row("IN", true)
		case out:
			return row("OUT", true)
		default:
			return row("IN_OUT", true)
		}
	}
	return row("SCRATCH", false)
}

// complete reports whether the object that a parameter points to has a defined size.
func (s *spec) complete(p param) bool {
	if p.Class != "struct*" {
		return true
	}
	name := strings.TrimSpace(strings.TrimSuffix(strings.TrimPrefix(p.Type, "const "), "*"))
	for tag, st := range s.Structs {
		if slices.Contains(typedefs(tag, st), name) {
			return st.known()
		}
	}
	return false
}
