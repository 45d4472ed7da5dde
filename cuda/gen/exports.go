package main

import "strings"

func emitImpl(w *writer, s *spec) {
	w.cHeader("What stands behind the exported symbols.")
	w.f(`#ifndef PEGASUS_ZZ_IMPL_H
#define PEGASUS_ZZ_IMPL_H

/*
 * Every exported symbol first calls pg_enter, declared in api/entry.h, unless it may
 * be called before cuInit; what pg_enter returns, if not CUDA_SUCCESS, is what the
 * caller gets. A symbol without implementation returns what pg_unsupported does.
 *
 * Streams: CU_STREAM_PER_THREAD arrives as itself, whether the program asked for
 * it by handle or by a _ptsz symbol. Synchronous copies and fills, which have no
 * stream in the API, get it as one more argument: CU_STREAM_LEGACY from the plain
 * symbol, CU_STREAM_PER_THREAD from the _ptds one.
 */

#include "cuda.h"
#include "cuda_shm.h"

`)
	for _, f := range s.exported() {
		if f.implemented() {
			w.f("%s;\n", implPrototype(s, f))
		}
	}
	w.f("\n#endif\n")
}

func implPrototype(s *spec, f *function) string {
	p := strings.Replace(prototype(f, "pg_"+f.Symbol), " CUDAAPI", "", 1)
	if f.takesStream(s) {
		p = strings.TrimSuffix(p, ")") + ", CUstream stream)"
	}
	return p
}

func emitExports(w *writer, s *spec) {
	w.cHeader("The exported symbols of libcuda.so.1: what each does is decided in cuda/spec/overlay.toml.")
	w.f(`#define __CUDA_API_VERSION_INTERNAL
#define PEGASUS_CUDA_ALL
#include "api/entry.h"
#include "core/device.h"
#include "core/zz_impl.h"

#pragma GCC diagnostic ignored "-Wunused-parameter"

#define EXPORT __attribute__((visibility("default")))

/* The null stream of a _ptsz symbol is the thread's own. */
static inline CUstream own_stream(CUstream stream)
{
	return stream ? stream : CU_STREAM_PER_THREAD;
}

/* Sizes that do not fit the first ABI's 32 bits are as large as these can say. */
static inline unsigned int narrow_size(size_t n)
{
	return n > UINT32_MAX ? UINT32_MAX : (unsigned int)n;
}

static CUresult stub(const char *symbol)
{
	CUresult r = pg_enter(0);
	return r ? r : pg_unsupported(symbol);
}

`)
	emitConversions(w, s)
	for _, f := range s.exported() {
		w.f("EXPORT %s\n{\n", prototype(f, f.Symbol))
		emitOlder(w, s, f)
		emitBody(w, s, f)
		w.f("}\n\n")
	}
}

// emitOlder makes a symbol that is newer than the announced driver version behave like the earlier symbol of
// its name, which takes fewer arguments. Such a driver doesn't export the symbol; a program that finds it
// here nevertheless calls it like the earlier one, and the remaining arguments are arbitrary register
// contents.
func emitOlder(w *writer, s *spec, f *function) {
	older := f.older(s)
	if older == nil || f.Since <= headerVersion {
		return
	}
	var names []string
	for i := range older.Params {
		names = append(names, f.Params[i].Name)
	}
	w.f("\tif (device_driver_version() < %d)\n\t\treturn %s(%s);\n", f.Since, older.Symbol, strings.Join(names, ", "))
}

// older returns the newest symbol before f, of the same name and kind of stream, with parameters that are a
// prefix of f's.
func (f *function) older(s *spec) *function {
	var older *function
	for _, g := range s.Functions {
		if g.Name != f.Name || g.Stream != f.Stream || g.Since >= f.Since || len(g.Params) >= len(f.Params) || older != nil && older.Since > g.Since {
			continue
		}
		begins := true
		for i, p := range g.Params {
			begins = begins && p.Type == f.Params[i].Type
		}
		if begins {
			older = g
		}
	}
	return older
}

func emitBody(w *writer, s *spec, f *function) {
	d := f.decision
	if d.Body == bodyStub {
		w.f("\treturn stub(\"%s\");\n", f.Symbol)
		return
	}
	if !d.BeforeInit {
		flags := "0"
		if f.unsafe(s) {
			flags = "ENTER_UNSAFE"
		}
		w.f("\tCUresult r = pg_enter(%s);\n\tif (r)\n\t\treturn r;\n", flags)
	}
	if d.Body == bodyConstant {
		emitConstant(w, f)
		return
	}
	target := f.target(s)
	if target == nil {
		w.f("\treturn pg_unsupported(\"%s\");\n", f.Symbol)
		return
	}
	emitCall(w, s, f, target)
}

// unsafe reports whether f, or the symbol that it is an alias of, is unsafe.
func (f *function) unsafe(s *spec) bool {
	for f.decision.Body == bodyAlias && !f.decision.Unsafe {
		f = s.bySymbol[f.decision.Of]
	}
	return f.decision.Unsafe
}

func emitConstant(w *writer, f *function) {
	for _, name := range sortedKeys(f.decision.Out) {
		w.f("\tif (!%s)\n\t\treturn CUDA_ERROR_INVALID_VALUE;\n\t*%s = %d;\n", name, name, f.decision.Out[name])
	}
	w.f("\treturn %s;\n", f.decision.Result)
}

// argument is the C code that fills one parameter of the target.
type argument struct {
	before, value, after string
}

// emitCall calls the target's implementation with f's arguments.
func emitCall(w *writer, s *spec, f, target *function) {
	var args []argument
	for _, p := range missing(f, target) {
		w.f("\tif (%s)\n\t\treturn CUDA_ERROR_NOT_SUPPORTED;\n", p.Name)
	}
	for i, p := range target.Params {
		args = append(args, convert(f, matching(f, target, i), p))
	}
	if target.takesStream(s) {
		stream := "CU_STREAM_LEGACY"
		if f.Stream == "ptds" {
			stream = "CU_STREAM_PER_THREAD"
		}
		args = append(args, argument{value: stream})
	}
	var values []string
	after := ""
	for _, a := range args {
		w.f("%s", a.before)
		after += a.after
		values = append(values, a.value)
	}
	call := "pg_" + target.Symbol + "(" + strings.Join(values, ", ") + ")"
	if after == "" {
		w.f("\treturn %s;\n", call)
		return
	}
	w.f("\tr = %s;\n%s\treturn r;\n", call, after)
}

// matching returns f's parameter for the target's i-th: by position when they have equally many, else by
// name.
func matching(f, target *function, i int) param {
	if len(f.Params) == len(target.Params) {
		return f.Params[i]
	}
	for _, p := range f.Params {
		if p.Name == target.Params[i].Name {
			return p
		}
	}
	panic(f.Symbol + ": no parameter for " + target.Symbol + "'s " + target.Params[i].Name)
}

// missing returns f's parameters that the target lacks.
func missing(f, target *function) []param {
	var ps []param
	if len(f.Params) == len(target.Params) {
		return nil
	}
	for _, p := range f.Params {
		found := false
		for _, q := range target.Params {
			found = found || p.Name == q.Name
		}
		if !found {
			ps = append(ps, p)
		}
	}
	return ps
}

// convert passes f's parameter p as the target's q.
func convert(f *function, p, q param) argument {
	switch {
	case p.Type == "CUstream" && f.Stream == "ptsz":
		return argument{value: "own_stream(" + p.Name + ")"}
	case p.Type == "const CUlaunchConfig *" && f.Stream == "ptsz":
		return argument{
			before: "\tif (!" + p.Name + ")\n\t\treturn CUDA_ERROR_INVALID_VALUE;\n\tCUlaunchConfig own = *" + p.Name + ";\n\town.hStream = own_stream(own.hStream);\n",
			value:  "&own",
		}
	case p.Type == q.Type || !strings.HasSuffix(p.Type, "*"):
		return argument{value: p.Name}
	case strings.HasSuffix(p.Type, "_v1 *") && strings.HasPrefix(p.Type, "CUdeviceptr"):
		return argument{
			before: "\tCUdeviceptr wide_" + p.Name + " = 0;\n",
			value:  p.Name + " ? &wide_" + p.Name + " : NULL",
			after: "\tif (!r && wide_" + p.Name + " > UINT32_MAX)\n\t\tr = CUDA_ERROR_NOT_SUPPORTED; /* the old ABI has 32-bit addresses */\n" +
				"\tif (!r && " + p.Name + ")\n\t\t*" + p.Name + " = (CUdeviceptr_v1)wide_" + p.Name + ";\n",
		}
	case p.Type == "unsigned int *" && q.Type == "size_t *":
		return argument{
			before: "\tsize_t wide_" + p.Name + " = 0;\n",
			value:  p.Name + " ? &wide_" + p.Name + " : NULL",
			after:  "\tif (!r && " + p.Name + ")\n\t\t*" + p.Name + " = narrow_size(wide_" + p.Name + ");\n",
		}
	}
	return convertStruct(p, q)
}

// convertStruct passes a structure of the first ABI.
func convertStruct(p, q param) argument {
	wide := strings.TrimSuffix(strings.TrimPrefix(q.Type, "const "), " *")
	if strings.HasPrefix(p.Type, "const ") {
		return argument{
			before: "\tif (!" + p.Name + ")\n\t\treturn CUDA_ERROR_INVALID_VALUE;\n\t" + wide + " wide_" + p.Name + " = widen_" + wide + "(" + p.Name + ");\n",
			value:  "&wide_" + p.Name,
		}
	}
	return argument{
		before: "\tif (!" + p.Name + ")\n\t\treturn CUDA_ERROR_INVALID_VALUE;\n\t" + wide + " wide_" + p.Name + " = {0};\n",
		value:  "&wide_" + p.Name,
		after:  "\tif (!r)\n\t\tnarrow_" + wide + "(&wide_" + p.Name + ", " + p.Name + ");\n",
	}
}

// conversions are the structures with a first ABI of their own, and the directions that are needed.
var conversions = []struct {
	typedef       string
	widen, narrow bool
}{
	{"CUDA_MEMCPY2D", true, false},
	{"CUDA_MEMCPY3D", true, false},
	{"CUDA_ARRAY_DESCRIPTOR", true, true},
	{"CUDA_ARRAY3D_DESCRIPTOR", true, true},
}

func emitConversions(w *writer, s *spec) {
	for _, c := range conversions {
		old := s.Structs[c.typedef+"_v1_st"]
		fields := func(format string) {
			for _, f := range old.Fields {
				if !strings.HasPrefix(f.Name, "reserved") {
					w.f(format, f.Name, f.Name)
				}
			}
		}
		if c.widen {
			w.f("static %s widen_%s(const %s_v1 *from)\n{\n\treturn (%s){\n", c.typedef, c.typedef, c.typedef, c.typedef)
			fields("\t\t.%s = from->%s,\n")
			w.f("\t};\n}\n\n")
		}
		if c.narrow {
			w.f("static void narrow_%s(const %s *from, %s_v1 *to)\n{\n", c.typedef, c.typedef, c.typedef)
			for _, f := range old.Fields {
				value := "from->" + f.Name
				if f.Type == "unsigned int" && f.Name != "NumChannels" && f.Name != "Flags" {
					value = "narrow_size(" + value + ")"
				}
				w.f("\tto->%s = %s;\n", f.Name, value)
			}
			w.f("}\n\n")
		}
	}
}

func emitMap(w *writer, s *spec) {
	w.cHeader("The library shows its exported symbols and nothing else. NVIDIA's has no symbol versions either.")
	w.f("{\nglobal:\n")
	for _, f := range s.exported() {
		w.f("\t%s;\n", f.Symbol)
	}
	w.f("local:\n\t*;\n};\n")
}
