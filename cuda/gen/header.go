package main

import (
	"maps"
	"slices"
	"sort"
	"strings"
)

// headerVersion is the CUDA version of the programs that the header is for. It determines the ABI of an
// unsuffixed name.
const headerVersion = 12040

func emitHeader(w *writer, s *spec) {
	w.cHeader("The CUDA driver API, for programs that link to libcuda. Names without suffix mean what they mean in CUDA 12.4.")
	w.f(`#ifndef PEGASUS_CUDA_H
#define PEGASUS_CUDA_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CUDAAPI
#define CUDA_CB

`)
	emitDefines(w, s)
	emitEnums(w, s)
	w.f("%s", handleTypes)
	emitStructs(w, s)
	emitPrototypes(w, s)
	emitVersionMacros(w, s)
	w.f("\n#ifdef __cplusplus\n}\n#endif\n\n#endif\n")
}

// casts are the macros that are not plain numbers.
var casts = map[string]string{
	"CU_STREAM_LEGACY": "CUstream", "CU_STREAM_PER_THREAD": "CUstream",
	"CU_DEVICE_CPU": "CUdevice", "CU_DEVICE_INVALID": "CUdevice",
	"CU_LAUNCH_PARAM_END": "void *", "CU_LAUNCH_PARAM_BUFFER_POINTER": "void *", "CU_LAUNCH_PARAM_BUFFER_SIZE": "void *",
}

func emitDefines(w *writer, s *spec) {
	for _, name := range sortedKeys(s.Defines) {
		v := s.Defines[name]
		switch {
		case name == "CUDA_VERSION":
			w.f("#define CUDA_VERSION %d\n", headerVersion)
		case casts[name] != "":
			w.f("#define %s ((%s)%d)\n", name, casts[name], v)
		default:
			w.f("#define %s %d\n", name, v)
		}
	}
	w.f("\n")
}

// byValue orders enumerators by value, then name.
func byValue(values map[string]int64) []string {
	names := slices.Collect(maps.Keys(values))
	sort.Slice(names, func(i, j int) bool {
		a, b := names[i], names[j]
		if values[a] != values[b] {
			return values[a] < values[b]
		}
		return a < b
	})
	return names
}

func emitEnums(w *writer, s *spec) {
	seen := map[string]bool{}
	for _, tag := range sortedKeys(s.Enums) {
		e := s.Enums[tag]
		if !e.fresh(seen) {
			w.f("typedef int %s;\n\n", e.typedef(tag))
			continue
		}
		w.f("typedef enum %s {\n", tag)
		for _, name := range byValue(e.Values) {
			if seen[name] {
				continue
			}
			seen[name] = true
			if v := e.Values[name]; v > 0x7fffffff {
				w.f("\t%s = 0x%xu,\n", name, v)
			} else {
				w.f("\t%s = %d,\n", name, v)
			}
		}
		w.f("} %s;\n\n", e.typedef(tag))
	}
}

func (e *enum) typedef(tag string) string {
	if e.Typedef != "" {
		return e.Typedef
	}
	return tag
}

// fresh reports whether e has enumerators that no earlier enumeration has.
func (e *enum) fresh(seen map[string]bool) bool {
	for name := range e.Values {
		if !seen[name] {
			return true
		}
	}
	return false
}

// handleTypes are the types that are neither structures with public contents nor enumerations.
const handleTypes = `typedef uint32_t cuuint32_t;
typedef uint64_t cuuint64_t;
typedef int CUdevice_v1;
typedef CUdevice_v1 CUdevice;
typedef unsigned int CUdeviceptr_v1;
typedef unsigned long long CUdeviceptr_v2;
typedef CUdeviceptr_v2 CUdeviceptr;
typedef unsigned long long CUtexObject_v1;
typedef CUtexObject_v1 CUtexObject;
typedef unsigned long long CUsurfObject_v1;
typedef CUsurfObject_v1 CUsurfObject;
typedef unsigned long long CUmemGenericAllocationHandle_v1;
typedef CUmemGenericAllocationHandle_v1 CUmemGenericAllocationHandle;
typedef cuuint64_t CUgraphConditionalHandle;
typedef unsigned int CUlogIterator;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUlib_st *CUlibrary;
typedef struct CUkern_st *CUkernel;
typedef struct CUarray_st *CUarray;
typedef struct CUmipmappedArray_st *CUmipmappedArray;
typedef struct CUtexref_st *CUtexref;
typedef struct CUsurfref_st *CUsurfref;
typedef struct CUevent_st *CUevent;
typedef struct CUstream_st *CUstream;
typedef struct CUgraphicsResource_st *CUgraphicsResource;
typedef struct CUextMemory_st *CUexternalMemory;
typedef struct CUextSemaphore_st *CUexternalSemaphore;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphNode_st *CUgraphNode;
typedef struct CUgraphExec_st *CUgraphExec;
typedef struct CUgraphDeviceUpdatableNode_st *CUgraphDeviceNode;
typedef struct CUmemPoolHandle_st *CUmemoryPool;
typedef struct CUuserObject_st *CUuserObject;
typedef struct CUlinkState_st *CUlinkState;
typedef struct CUgreenCtx_st *CUgreenCtx;
typedef struct CUdevResourceDesc_st *CUdevResourceDesc;
typedef struct CUasyncCallbackEntry_st *CUasyncCallbackHandle;
typedef struct CUlogsCallbackEntry_st *CUlogsCallbackHandle;
typedef struct CUcoredumpCallbackEntry_st *CUcoredumpCallbackHandle;
typedef struct CUeglStreamConnection_st *CUeglStreamConnection;

struct CUasyncNotificationInfo_st;
typedef void (CUDA_CB *CUhostFn)(void *userData);
typedef void (CUDA_CB *CUstreamCallback)(CUstream hStream, CUresult status, void *userData);
typedef size_t (CUDA_CB *CUoccupancyB2DSize)(int blockSize);
typedef void (CUDA_CB *CUasyncCallback)(struct CUasyncNotificationInfo_st *info, void *userData, CUasyncCallbackHandle callback);
typedef void (CUDA_CB *CUlogsCallback)(void *data, CUlogLevel logLevel, char *message, size_t length);
typedef void (CUDA_CB *CUcoredumpStatusCallback)(void *userData, int pid, CUdevice dev);

`

// graphicsTypes replace the declarations of other libraries' headers; only the library itself needs the
// prototypes that use them.
const graphicsTypes = `typedef unsigned int GLenum;
typedef unsigned int GLuint;
typedef int32_t EGLint;
typedef void *EGLImageKHR;
typedef void *EGLStreamKHR;
typedef void *EGLSyncKHR;
typedef uint32_t VdpDevice;
typedef uint32_t VdpVideoSurface;
typedef uint32_t VdpOutputSurface;
typedef void *VdpGetProcAddress;
`

func isGraphics(f *function) bool {
	for _, p := range f.Params {
		for _, prefix := range []string{"GL", "EGL", "Vdp"} {
			if strings.HasPrefix(p.Type, prefix) {
				return true
			}
		}
	}
	return false
}

func prototype(f *function, name string) string {
	if len(f.Params) == 0 {
		return "CUresult CUDAAPI " + name + "(void)"
	}
	var ps []string
	for _, p := range f.Params {
		ps = append(ps, declare(p.Type, p.Name))
	}
	return "CUresult CUDAAPI " + name + "(" + strings.Join(ps, ", ") + ")"
}

func declare(typ, name string) string {
	if strings.HasSuffix(typ, "*") {
		return typ + name
	}
	return typ + " " + name
}

func emitPrototypes(w *writer, s *spec) {
	for _, f := range s.Functions {
		if !isGraphics(f) {
			w.f("%s;\n", prototype(f, f.Symbol))
		}
	}
	w.f("\n#ifdef PEGASUS_CUDA_ALL\n%s\n", graphicsTypes)
	for _, f := range s.Functions {
		if isGraphics(f) {
			w.f("%s;\n", prototype(f, f.Symbol))
		}
	}
	w.f("#endif\n\n")
}

// keptABI are names that CUDA 12 left at an ABI other than the one by the table's rows.
var keptABI = map[string]string{
	"cuCtxCreate": "cuCtxCreate_v2", "cuDeviceGetUuid": "cuDeviceGetUuid", "cuGraphInstantiate": "cuGraphInstantiateWithFlags",
}

// headerSymbol returns the symbol of an unsuffixed name in programs of headerVersion. Within a major version
// that symbol stays the same.
func headerSymbol(s *spec, name string) string {
	if kept := keptABI[name]; kept != "" {
		return kept
	}
	best, since := "", -1
	for _, f := range s.Functions {
		if f.Name == name && f.Stream == "" && f.Since <= headerVersion/1000*1000 && f.Since > since {
			best, since = f.Symbol, f.Since
		}
	}
	return best
}

func emitVersionMacros(w *writer, s *spec) {
	w.f("#ifndef __CUDA_API_VERSION_INTERNAL\n")
	w.f("#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM\n#define PEGASUS_PTDS(f) f##_ptds\n#define PEGASUS_PTSZ(f) f##_ptsz\n")
	w.f("#else\n#define PEGASUS_PTDS(f) f\n#define PEGASUS_PTSZ(f) f\n#endif\n")
	done := map[string]bool{}
	for _, f := range s.Functions {
		if done[f.Name] {
			continue
		}
		done[f.Name] = true
		sym := headerSymbol(s, f.Name)
		switch {
		case sym == "":
		case s.bySymbol[sym+"_ptds"] != nil:
			w.f("#define %s PEGASUS_PTDS(%s)\n", f.Name, sym)
		case s.bySymbol[sym+"_ptsz"] != nil:
			w.f("#define %s PEGASUS_PTSZ(%s)\n", f.Name, sym)
		case sym != f.Name:
			w.f("#define %s %s\n", f.Name, sym)
		}
	}
	w.f("#endif\n")
}
