package main

import "strings"

func emitCWire(w *writer, s *spec) {
	w.cHeader("The operations that travel through a call buffer, and their records.")
	w.f(`#ifndef PEGASUS_ZZ_WIRE_H
#define PEGASUS_ZZ_WIRE_H

#include <stddef.h>
#include <stdint.h>

#define WIRE_FIELD(type, field, at) _Static_assert(offsetof(struct type, field) == (at), #type "." #field)
#define WIRE_SIZE(type, bytes) _Static_assert(sizeof(struct type) == (bytes), #type)

enum op {
`)
	for _, o := range s.Ops {
		w.f("\tOP_%s = %d,\n", strings.ToUpper(snake(o.Name)), o.Num)
	}
	w.f("};\n\n")
	w.f("/* Endpoint kinds of OP_COPY and OP_COPY_LINEAR. */\nenum { END_DEVICE = 1, END_ARENA = 2, END_ARRAY = 3, END_INLINE = 4 };\n\n")
	for _, o := range s.Ops {
		w.f("/* %s (%s, reply %s): %s */\n", o.Name, o.Class, o.Reply, o.Doc)
		emitCRecord(w, snake(o.Name)+"_args", o.Args)
		emitCRecord(w, snake(o.Name)+"_result", o.Result)
		w.f("\n")
	}
	w.f("#endif\n")
}

func emitCRecord(w *writer, name string, r record) {
	if len(r.Fields) == 0 {
		return
	}
	w.f("struct %s {\n", name)
	for _, f := range r.Fields {
		if f.Count > 0 {
			w.f("\t%s %s[%d];\n", f.Kind.C, f.Name, f.Count)
		} else {
			w.f("\t%s %s;\n", f.Kind.C, f.Name)
		}
	}
	if r.Bytes != "" {
		w.f("\t/* followed by %s */\n", r.Bytes)
	}
	w.f("};\n")
	for _, f := range r.Fields {
		w.f("WIRE_FIELD(%s, %s, %d);\n", name, f.Name, f.Offset)
	}
	w.f("WIRE_SIZE(%s, %d);\n", name, r.Size)
}
